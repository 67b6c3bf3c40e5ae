// exports.h: all exports of the driver, for one expansion of EXPORT(export, asked, since, streams).
//
// The rows are the library's own, cgo/symbols.def: the null driver exports exactly what the library
// knows of. It may be included any number of times; EXPORT is undefined at its end.
#define HOOK(export, asked, since, streams, class) EXPORT(export, asked, since, streams)
#define LATER(export, asked, since, streams, class, waits) EXPORT(export, asked, since, streams)
#define PASS(export, asked, since, streams, class) EXPORT(export, asked, since, streams)
#include "../../../cgo/symbols.def"
#undef EXPORT
