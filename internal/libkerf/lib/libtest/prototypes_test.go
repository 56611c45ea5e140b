// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"debug/dwarf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asking is a name that means a function to cuGetProcAddress from a CUDA version on.
type asking struct {
	by    string
	since int
}

// prototype is what is published of a function. The letters of args are explained in testdata/prototypes.txt.
type prototype struct {
	name, args string
	asked      []asking
	perThread  bool
}

func (p prototype) of() string {
	if strings.HasPrefix(p.name, "nvml") {
		return "NVML"
	}
	return "CUDA"
}

// prototypes reads testdata/prototypes.txt, with the forms for per-thread streams as entries of their own.
func prototypes(t *testing.T) []prototype {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "prototypes.txt"))
	if err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`^(\w+?)((?:_v2)?)((?:_v[34])?)(?:\[(_pt[ds][sz])\])? ([PQSIHB]+|-)((?: \w+@\d+)*)$`)
	var out []prototype
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		m := form.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("no prototype: %q", line)
		}
		p := prototype{name: m[1] + m[2] + m[3], args: strings.TrimPrefix(m[5], "-")}
		for a := range strings.FieldsSeq(m[6]) {
			by, since, _ := strings.Cut(a, "@")
			version, err := strconv.Atoi(since)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			p.asked = append(p.asked, asking{by, version})
		}
		switch {
		case p.of() == "NVML", len(p.asked) > 0:
		case m[2] != "":
			p.asked = []asking{{m[1], 3020}}
		default:
			p.asked = []asking{{p.name, 2000}}
		}
		out = append(out, p)
		if m[4] != "" {
			p.perThread, p.asked = true, slices.Clone(p.asked)
			for i := range p.asked {
				p.asked[i].since = max(p.asked[i].since, 7000)
			}
			p.name += m[4]
			out = append(out, p)
		}
	}
	return out
}

// A numbered form that came after the oldest headers that are known means its name from when it came, as the facts have
// it.
func TestSince(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "cuda-driver-symbols.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	came := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var name, last string
		var major, minor int
		if n, err := fmt.Sscanf(line, "%s %d.%d %s", &name, &major, &minor, &last); err == nil && n == 4 &&
			last != "library" && name[0] != '#' {
			came[name] = 1000*major + 10*minor
		}
	}
	compared := 0
	for _, p := range prototypes(t) {
		if version := came[p.name]; version > 11040 && regexp.MustCompile(`_v\d$`).MatchString(p.name) {
			compared++
			if p.asked[0].since != version {
				t.Errorf("%s is said to be since %d, and came with %d", p.name, p.asked[0].since, version)
			}
		}
	}
	if compared < 10 {
		t.Errorf("compared %d forms only", compared)
	}
}

// bits are how wide an argument is.
func bits(letter rune) int {
	switch letter {
	case 'I':
		return 32
	case 'H':
		return 16
	case 'B':
		return 8
	}
	return 64
}

// definitions are the same for C, as check/every/every.h has it.
func definitions(all []prototype) string {
	var s strings.Builder
	for _, p := range all {
		params, words, names := []string{}, []string{}, []string{}
		for i, letter := range p.args {
			params = append(params, fmt.Sprintf("uint%d_t a%d", bits(letter), i))
			words = append(words, fmt.Sprintf("(uint%d_t)v[%d]", bits(letter), i))
			names = append(names, fmt.Sprintf("a%d", i))
		}
		if p.args == "" {
			params = []string{"void"}
		}
		fmt.Fprintf(&s, "%s(%s, (%s), (%s)%s)\n", p.of(), p.name, strings.Join(params, ", "), strings.Join(words, ", "),
			strings.Join(append([]string{""}, names...), ", "))
	}
	for _, p := range all {
		for _, a := range p.asked {
			fmt.Fprintf(&s, "ASKED(%s, %d, %s, %t)\n", a.by, a.since, p.name, p.perThread)
		}
	}
	return s.String()
}

// Each wrapper has a published prototype, and its own has arguments as wide. A too wide one would read what the caller
// left in the upper half, and no call shows that.
func TestPrototypes(t *testing.T) {
	names, _ := wrapped(t)
	want, got := map[string]string{}, map[string]string{}
	for _, p := range prototypes(t) {
		if _, twice := want[p.name]; twice {
			t.Errorf("%s comes twice", p.name)
		}
		widths := []string{"32:"}
		for _, letter := range p.args {
			widths = append(widths, strconv.Itoa(bits(letter)))
		}
		want[p.name] = strings.Join(widths, " ")
	}
	data, err := library(t).DWARF()
	if err != nil {
		t.Fatal(err)
	}
	for r := data.Reader(); ; {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		if e.Tag == dwarf.TagSubprogram && e.AttrField(dwarf.AttrLowpc) != nil && slices.Contains(names, name) {
			got[name] = strings.Join(append([]string{width(t, data, e) + ":"}, parameters(t, data, r, e)...), " ")
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("result and arguments in bits (-published +the library's):\n%s", d)
	}
	if len(got) != len(names) {
		t.Errorf("%d of %d wrappers have been compared", len(got), len(names))
	}
}

func parameters(t *testing.T, data *dwarf.Data, r *dwarf.Reader, of *dwarf.Entry) (out []string) {
	t.Helper()
	for of.Children {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Tag == 0 {
			break
		}
		if e.Tag == dwarf.TagFormalParameter {
			out = append(out, width(t, data, e))
		}
		r.SkipChildren()
	}
	return out
}

func width(t *testing.T, data *dwarf.Data, e *dwarf.Entry) string {
	t.Helper()
	at, ok := e.Val(dwarf.AttrType).(dwarf.Offset)
	if !ok {
		return "?"
	}
	typ, err := data.Type(at)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatInt(8*typ.Size(), 10)
}
