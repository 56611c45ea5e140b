// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

//go:embed lib/families.def
var families string

// Table says of each known entry point what it means. It does not change; copies share it.
type Table struct {
	class  map[string]Class
	family *regexp.Regexp
}

// familyNames matches the names through which device memory can be had or the GPU's time is taken, now or, by their pattern, in a driver
// to come.
const familyNames = `^cu(Mem[A-Z]|Array|MipmappedArray|DeviceTotalMem|Device.*(MemPool|GraphMem)|` +
	`Graph(AddMem(Alloc|Free)|AddNode|Mem(Alloc|Free)|Instantiate|Launch|Upload)|Graphics|GL|VDPAU|EGL|Import|External|` +
	`DestroyExternalMemory|Ipc.*Mem|Multicast|Ctx(Create|Attach|Detach|Destroy|SetLimit|FromGreen)|GreenCtx|` +
	`Memcpy|Memset|Launch|Stream(WaitValue|WriteValue|BatchMemOp)|DevicePrimaryCtx|Module(Load|Unload)|Library(Load|Unload)|LinkComplete|CheckpointProcess|GetProcAddress|GetExportTable)`

// Families is the table that comes with this program. An error wraps sharing.ErrInvalid and means that the
// program was built from a spoilt file.
func Families() (Table, error) { return parse(families) }

// parse reads lines "FAMILY(name, class)"; comments as C has them stand in lines of their own.
func parse(text string) (Table, error) {
	line := regexp.MustCompile(`^FAMILY\((cu[A-Za-z0-9_]+), ([a-z]+)\)$`)
	t := Table{class: map[string]Class{}, family: regexp.MustCompile(familyNames)}
	for i, s := range strings.Split(text, "\n") {
		if s == "" || strings.HasPrefix(s, "/*") || strings.HasPrefix(s, " *") {
			continue
		}
		m := line.FindStringSubmatch(s)
		if m == nil {
			return Table{}, fmt.Errorf("read families line %d: %q is no entry: %w", i+1, s, sharing.ErrInvalid)
		}
		name, class := m[1], Class(m[2])
		if !slices.Contains(classes(), class) {
			return Table{}, fmt.Errorf("read families line %d: no class %q: %w", i+1, class, sharing.ErrInvalid)
		}
		if _, twice := t.class[name]; twice {
			return Table{}, fmt.Errorf("read families line %d: %q comes twice: %w", i+1, name, sharing.ErrInvalid)
		}
		t.class[name] = class
	}
	return t, nil
}

// Class tells what the exported name means, such as Charge for "cuMemAlloc_v2". known is false for a name that
// the table does not have, which is of these families only if Unknown returns it.
func (t Table) Class(name string) (class Class, known bool) {
	class, known = t.class[name]
	return class, known
}

// Names are those of a class, sorted.
func (t Table) Names(class Class) []string {
	var out []string
	for name, c := range t.class {
		if c == class {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Unknown returns those of the names that are of these families and not in the table, sorted: entry points of a
// newer driver through which memory might be had unseen.
func (t Table) Unknown(names []string) []string {
	var out []string
	for _, n := range names {
		if _, known := t.class[n]; !known && t.family != nil && t.family.MatchString(n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
