// cubin.c: an ELF file with code for one kind of device. Its sections say what will lie in device
// memory: code, constant banks, and variables with and without initial values (.nv.global is as
// long as all that have none).
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "image.h"

// Section names are compared to this length.
#define NAME_BYTES_MAX 16u

struct names {
    uint64_t at, bytes;  // of the table of section names, in the file
};

static bool begins(const char *name, const char *with) {
    return memcmp(name, with, strlen(with)) == 0;
}

// Copies a section's name, as far as it matters; what cannot be read is empty.
static void read_name(const struct weir_view *view, const struct names *names, uint32_t offset,
                      char name[NAME_BYTES_MAX]) {
    memset(name, 0, NAME_BYTES_MAX);
    if (offset >= names->bytes)
        return;
    uint64_t room = names->bytes - offset;
    size_t bytes = room < NAME_BYTES_MAX - 1 ? (size_t)room : NAME_BYTES_MAX - 1;
    if (!weir_view_has(view, names->at + offset, bytes))
        return;
    const char *from = (const char *)view->at + names->at + offset;
    for (size_t i = 0; i < bytes && from[i]; i++)
        name[i] = from[i];
}

static void count_section(const Elf64_Shdr *section, const char *name, struct weir_image *out) {
    bool code = section->sh_type == SHT_PROGBITS && (section->sh_flags & SHF_EXECINSTR);
    if (code)
        weir_image_add(&out->code_bytes, section->sh_size);
    else if (begins(name, ".nv.global") || begins(name, ".nv.constant"))
        weir_image_add(&out->variable_bytes, section->sh_size);
}

int weir_cubin_read(const struct weir_view *view, struct weir_image *out) {
    Elf64_Ehdr header;
    Elf64_Shdr section;
    if (!weir_view_has(view, 0, sizeof(header)))
        return EFAULT;
    memcpy(&header, view->at, sizeof(header));
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_shentsize != sizeof(section) || header.e_shstrndx >= header.e_shnum)
        return EINVAL;
    if (!weir_view_has(view, header.e_shoff, (uint64_t)header.e_shnum * sizeof(section)))
        return EFAULT;
    const uint8_t *sections = view->at + header.e_shoff;
    memcpy(&section, sections + header.e_shstrndx * sizeof(section), sizeof(section));
    struct names names = {section.sh_offset, section.sh_size};
    for (uint32_t i = 0; i < header.e_shnum; i++) {
        char name[NAME_BYTES_MAX];
        memcpy(&section, sections + i * sizeof(section), sizeof(section));
        read_name(view, &names, section.sh_name, name);
        count_section(&section, name, out);
    }
    return 0;
}
