// Cards divided into MIG instances: the keys of a machine file, what is made of them, and the books.

package sim

// #include "layout.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const migWanted = `a model whose MIG profiles are known, such as "A30-24GB"`

func setMIG(g *gpuTable, value any) error {
	model, _ := value.(string)
	if g.MIG = geometryOf(model); g.MIG == nil {
		return fmt.Errorf("%s is not %s; known: %s", given(value), migWanted, geometryModels())
	}
	return nil
}

const instancesWanted = `a list of profiles such as ["3g.20gb", "1g.5gb@4"], each with its first ` +
	`memory slice where that matters`

func setInstances(g *gpuTable, value any) error {
	list, isList := value.([]any)
	for _, entry := range list {
		text, _ := entry.(string)
		profile, at, placed := strings.Cut(text, "@")
		start, err := strconv.ParseUint(at, 10, 3)
		if profile == "" || (placed && err != nil) {
			return fmt.Errorf("%s is not %s", given(value), instancesWanted)
		}
		instance := Instance{Profile: profile, Start: -1}
		if placed {
			instance.Start = int(start)
		}
		g.MIGInstances = append(g.MIGInstances, instance)
	}
	if !isList || len(list) == 0 {
		return fmt.Errorf("%s is not %s", given(value), instancesWanted)
	}
	return nil
}

// instances checks that a card's instances can be made, one after the other.
func (r *reader) instances(table string, scale int64, kind gpuTable) {
	geometry := kind.MIG.config(kind.GPU, scale)
	var state C.struct_sim_mig_state
	for _, instance := range kind.MIGInstances {
		profile := kind.MIG.profile(instance.Profile)
		if profile < 0 {
			r.mistake(table, "mig_instances", "%.20q is no profile of %s; it has %s", instance.Profile,
				kind.MIG.Model, kind.MIG.profileNames())
			return
		}
		start := C.uint(instance.Start)
		if instance.Start < 0 {
			start = C.sim_mig_best_start(&geometry, &state, C.uint(profile))
		}
		if start >= C.SIM_MIG_SLICES ||
			C.sim_mig_fits(&geometry, &state, C.uint(profile), start) != 0 {
			r.mistake(table, "mig_instances", "there is no room for %s beside those before it",
				instance)
			return
		}
		state.instance[start] = C.uint8_t(profile + 1)
	}
}

func (i Instance) String() string {
	if i.Start < 0 {
		return i.Profile
	}
	return fmt.Sprintf("%s@%d", i.Profile, i.Start)
}

// profile finds a profile's number; -1 where there is none of that name.
func (g *Geometry) profile(name string) int {
	return slices.IndexFunc(g.Profiles, func(p Profile) bool { return p.Name == name })
}

func (g *Geometry) profileNames() string {
	var names []string
	for _, profile := range g.Profiles {
		names = append(names, profile.Name)
	}
	return strings.Join(names, ", ")
}

// divide makes the instances that a machine begins with.
func divide(dir string, machine *Machine) error {
	running, err := Open(dir)
	if err != nil {
		return err
	}
	defer running.Close()
	for i, gpu := range machine.GPUs {
		if len(gpu.MIGInstances) == 0 {
			continue
		}
		if err := running.SetMIG(i, true); err != nil {
			return err
		}
		for _, instance := range gpu.MIGInstances {
			if _, err := running.CreateMIG(i, instance); err != nil {
				return err
			}
		}
	}
	return nil
}

// ErrMIGInUse says that processes use what is to be changed.
var ErrMIGInUse = errors.New("in use")

func migError(what string, gpu int, rc C.int) error {
	switch err := syscall.Errno(rc); err {
	case 0:
		return nil
	case syscall.EBUSY:
		return fmt.Errorf("%s of GPU %d: %w", what, gpu, ErrMIGInUse)
	default:
		return fmt.Errorf("%s of GPU %d: %w", what, gpu, err)
	}
}

// SetMIG divides a card, or makes it whole. ErrMIGInUse: processes are attached to it, or instances
// are there; the mode is pending.
func (r *Running) SetMIG(gpu int, enabled bool) error {
	rc := C.sim_mig_set_mode(r.machine, C.uint(gpu), C.bool(enabled))
	return migError("MIG mode", gpu, rc)
}

// CreateMIG makes a GPU instance with one compute instance on a divided card, and returns the UUID
// of its MIG device.
func (r *Running) CreateMIG(gpu int, instance Instance) (string, error) {
	config := C.sim_machine_config(r.machine)
	if gpu < 0 || gpu >= int(config.gpu_count) {
		return "", fmt.Errorf("MIG instance of GPU %d: %w", gpu, syscall.EINVAL)
	}
	geometry := &config.gpus[gpu].mig
	start := C.uint(C.SIM_MIG_ANYWHERE)
	if instance.Start >= 0 {
		start = C.uint(instance.Start)
	}
	for i := range int(geometry.profile_count) {
		profile := &geometry.profiles[i]
		if C.GoString(&profile.name[0]) != instance.Profile {
			continue
		}
		var at, place C.uint
		rc := C.sim_mig_create(r.machine, C.uint(gpu), C.uint(i), start, &at)
		if rc == 0 {
			rc = C.sim_mig_create_compute(r.machine, C.uint(gpu), at, profile.compute_slices,
				C.SIM_MIG_ANYWHERE, &place)
		}
		var device C.struct_sim_gpu_config
		if rc == 0 {
			rc = C.sim_gpu_describe(r.machine, C.sim_mig_unit(C.uint(gpu), place), &device)
		}
		return migUUID(&device), migError("MIG instance "+instance.String(), gpu, rc)
	}
	return "", fmt.Errorf("MIG instance of GPU %d: no profile %q: %w", gpu, instance.Profile,
		syscall.EINVAL)
}

func migUUID(device *C.struct_sim_gpu_config) string {
	return uuidString("MIG", *(*[16]byte)(unsafe.Pointer(&device.uuid)))
}

// DestroyMIG takes a GPU instance and its compute instances away. ErrMIGInUse: a process is
// attached to one of them.
func (r *Running) DestroyMIG(gpu, id int) error {
	books, err := r.migBooks(gpu)
	if err != nil {
		return err
	}
	var instances []MIGInstance
	if books != nil {
		instances = books.Instances
	}
	i := slices.IndexFunc(instances, func(m MIGInstance) bool { return m.ID == id })
	if i < 0 {
		return migError("MIG instance", gpu, C.int(syscall.ENOENT))
	}
	for _, device := range instances[i].Devices {
		place := C.uint(instances[i].Start + device.ComputeInstance)
		rc := C.sim_mig_destroy_compute(r.machine, C.uint(gpu), place)
		if err := migError("MIG instance", gpu, rc); err != nil {
			return err
		}
	}
	rc := C.sim_mig_destroy(r.machine, C.uint(gpu), C.uint(instances[i].Start))
	return migError("MIG instance", gpu, rc)
}

// ---- Books ----

// migBooks reads how a card is divided, without its processes; nil where it cannot be.
func (r *Running) migBooks(gpu int) (*MIGBooks, error) {
	config := C.sim_machine_config(r.machine)
	var state C.struct_sim_mig_state
	if rc := C.sim_mig_look(r.machine, C.uint(gpu), &state); rc != 0 {
		return nil, migError("MIG state", gpu, rc)
	}
	geometry := &config.gpus[gpu].mig
	if geometry.profile_count == 0 {
		return nil, nil
	}
	books := &MIGBooks{
		Enabled: state.enabled != 0, Pending: state.pending != 0, Instances: []MIGInstance{},
	}
	devices := 0
	for start := range C.SIM_MIG_SLICES {
		if state.instance[start] == 0 {
			continue
		}
		number := C.uint(state.instance[start] - 1)
		profile := &geometry.profiles[number]
		instance := MIGInstance{
			ID:      int(C.sim_mig_instance_id(geometry, number, C.uint(start))),
			Profile: C.GoString(&profile.name[0]),
			Start:   start,
			Length:  int(profile.memory_slices),
			Devices: []MIGDevice{},
		}
		for within := range int(profile.compute_slices) {
			device, there := r.deviceBooks(gpu, start, within, devices, &state)
			if there {
				instance.Devices = append(instance.Devices, device)
				devices++
			}
		}
		books.Instances = append(books.Instances, instance)
	}
	return books, nil
}

// deviceBooks reads the MIG device that begins at a place. False: there is none, or none any more.
func (r *Running) deviceBooks(gpu, start, within, index int,
	state *C.struct_sim_mig_state) (MIGDevice, bool) {
	unit := C.sim_mig_unit(C.uint(gpu), C.uint(start+within))
	var config C.struct_sim_gpu_config
	var books C.struct_sim_gpu_state
	if state.compute[start+within] == 0 || C.sim_gpu_describe(r.machine, unit, &config) != 0 ||
		C.sim_machine_gpu(r.machine, unit, &books) != 0 {
		return MIGDevice{}, false
	}
	device := MIGDevice{
		ComputeInstance: within,
		Slices:          int(state.compute[start+within]),
		GPUBooks:        gpuBooks(index, &config, &books),
	}
	device.UUID = migUUID(&config)
	return device, true
}

// number enters the MIG devices of a card under their numbers in the machine.
func (m *MIGBooks) number(card int, all map[int]*GPUBooks) {
	if m == nil {
		return
	}
	for i := range m.Instances {
		instance := &m.Instances[i]
		for k := range instance.Devices {
			place := instance.Start + instance.Devices[k].ComputeInstance
			unit := C.sim_mig_unit(C.uint(card), C.uint(place))
			all[int(unit)] = &instance.Devices[k].GPUBooks
		}
	}
}
