// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package parted

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// Bounds of a file: what a ConfigMap can have, and no more values than that has even if anchors repeat them.
const (
	MaxSize   = 1 << 20
	maxValues = 1 << 17
	maxErrors = 100
)

// Parse reads a config, YAML or JSON. The error joins all problems, at most 100, each a *sharing.FieldError after its
// line. With an error it returns nothing else.
func Parse(data []byte) (File, error) {
	r := &reader{}
	if len(data) > MaxSize {
		return File{}, sharing.Invalid("the file", "", "split it", "is larger than %d bytes", MaxSize)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root, second yaml.Node
	if err := decoder.Decode(&root); err != nil || len(root.Content) != 1 {
		if err == nil || errors.Is(err, io.EOF) {
			return File{}, sharing.Invalid("the file", "", "begin with version: v1", "is empty")
		}
		return File{}, sharing.Invalid("the file", "", "fix the syntax", "is not YAML: %s",
			strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return File{}, sharing.Invalid("the file", "", "put all in the first YAML document",
			"is followed by another one")
	}
	doc := r.node(root.Content[0])
	if len(r.errs) > 0 {
		return File{}, errors.Join(r.errs...)
	}
	return doc, nil
}

// reader walks the nodes, because the library's decoding stops at the first error.
type reader struct {
	errs   []error
	values int
	past   bool // that there are too many was said
}

func (r *reader) bad(n *yaml.Node, field, value, remedy, problem string, args ...any) {
	r.note(n, sharing.Invalid(field, value, remedy, problem, args...))
}

func (r *reader) note(n *yaml.Node, err error) {
	if len(r.errs) < maxErrors {
		r.errs = append(r.errs, fmt.Errorf("line %d: %w", n.Line, err))
	}
}

func (r *reader) node(n *yaml.Node) (doc File) {
	if follow(n).Kind != yaml.MappingNode {
		r.bad(n, "the file", "", "begin with version: v1", "is not a mapping of fields")
		return doc
	}
	version := ""
	var configs *yaml.Node
	r.mapping(n, "the file", func(name string, key, value *yaml.Node) {
		switch name {
		case "version":
			if version = r.text(value, name); version != "" && version != "v1" {
				r.bad(value, name, version, "write v1", "is not a version that is known here")
			}
		case "mig-configs":
			configs = value
		default:
			r.bad(key, name, "", "use one of version, mig-configs", "is not a known field")
		}
	})
	if version == "" {
		r.bad(n, "version", "", "write version: v1", "is missing")
	}
	if configs == nil {
		r.bad(n, "mig-configs", "", "name at least one config", "is missing")
		return doc
	}
	r.mapping(configs, "mig-configs", func(name string, _, value *yaml.Node) {
		c := Config{Name: name}
		field := "mig-configs." + name
		r.list(value, field, func(field string, n *yaml.Node) { c.Entries = append(c.Entries, r.entry(n, field)) })
		doc.Configs = append(doc.Configs, c)
	})
	return doc
}

func (r *reader) entry(n *yaml.Node, field string) (e Entry) {
	has := map[string]bool{}
	off := false // mig-enabled is false, and not just wrong
	e.field = field + ".mig-devices"
	r.mapping(n, field, func(name string, key, value *yaml.Node) {
		has[name] = true
		at := field + "." + name
		switch name {
		case "device-filter":
			r.texts(value, at, func(n *yaml.Node, field, s string) {
				if f, ok := filter(s); ok {
					e.Filters = append(e.Filters, f)
				} else {
					r.bad(n, field, s,
						"write device and vendor, such as 0x233010DE, or with the subsystem 0x233010DE:0x16C110DE",
						"is not a PCI id")
				}
			})
		case "devices":
			e.All, e.Devices = r.devices(value, at)
		case "mig-enabled":
			if s := r.text(value, at); s == "true" || s == "false" {
				e.Enabled, off = s == "true", s == "false"
			} else {
				r.bad(value, at, s, "write true or false", "is not a truth value")
			}
		case "mig-devices":
			e.Instances = r.instances(value, at)
		default:
			r.bad(key, at, "", "use one of device-filter, devices, mig-enabled, mig-devices", "is not a known field")
		}
	})
	for _, name := range []string{"devices", "mig-enabled"} {
		if !has[name] {
			r.bad(n, field+"."+name, "", "say "+name, "is missing")
		}
	}
	switch {
	case e.Enabled && !has["mig-devices"]:
		r.bad(n, e.field, "", "list the instances, or write {} for none", "is missing where mig-enabled is true")
	case off && len(e.Instances) > 0:
		r.bad(n, e.field, "", "take it out, or set mig-enabled to true", "has instances where mig-enabled is false")
	}
	return e
}

func (r *reader) devices(n *yaml.Node, field string) (all bool, list []int) {
	if follow(n).Kind == yaml.ScalarNode {
		s := r.text(n, field)
		if s != "all" {
			r.bad(n, field, s, "write all, or a list of indexes", "is neither all nor a list")
		}
		return s == "all", nil
	}
	r.items(n, field, func(field string, n *yaml.Node) {
		s := r.text(n, field)
		index, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			r.bad(n, field, s, "write the index of a GPU, from 0", "is not an index")
		}
		list = append(list, int(index)) // #nosec G115 -- 16 bits
	})
	return false, list
}

func (r *reader) instances(n *yaml.Node, field string) (list []Count) {
	r.mapping(n, field, func(name string, key, value *yaml.Node) {
		at := field + "." + name
		w, err := mig.ParseWish(at, name)
		if err != nil {
			r.note(key, err)
			return
		}
		s := r.text(value, at)
		number, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			r.bad(value, at, s, "write how many there should be", "is not a number of instances")
		}
		list = append(list, Count{w, int(number)}) // #nosec G115 -- 16 bits
	})
	return list
}

var pciID = regexp.MustCompile(`^0[xX]([0-9a-fA-F]{8})(?::0[xX]([0-9a-fA-F]{8}))?$`)

func filter(s string) (Filter, bool) {
	m := pciID.FindStringSubmatch(s)
	if m == nil {
		return Filter{}, false
	}
	device, _ := strconv.ParseUint(m[1], 16, 32)           // eight digits each
	subsystem, _ := strconv.ParseUint(m[2], 16, 32)        // none: 0
	return Filter{uint32(device), uint32(subsystem)}, true // #nosec G115 -- parsed as 32 bits
}
