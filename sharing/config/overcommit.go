// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// overcommitField is how much more than a GPU has is given of it.
func overcommitField(to *sharing.Overcommit, def string) field {
	f := object(to, func() fields { return overcommitFields(to, def) },
		"How much more of each GPU is given in fractions than it has; whole GPUs and MIG instances are given once.")
	f.Type.Example = "{compute: 2}"
	return f
}

func overcommitFields(to *sharing.Overcommit, def string) fields {
	return named(to, fields{
		factor(&to.Memory, sharing.MaxMemoryFactor,
			"Up to how often a GPU's memory is granted. Above 1 caps add up to more than there is: the driver may refuse a program what is below its cap, nothing is lent for bursts, and who demands level `driver` or more gets no such GPU.").like("1.25").def(def),
		factor(&to.Compute, sharing.MaxComputeFactor,
			"Up to how often its compute is granted. Above 1 percents add up to more than 100, and each is worth its part of the sum.").like("2").def(def),
	})
}

// factor is a number from 1 on with at most two digits behind the point.
func factor(to *sharing.Factor, most sharing.Factor, doc string) field {
	return field{
		Field: Field{Doc: doc},
		to:    to,
		read: func(r *reader, path string, n *yaml.Node) {
			if !r.is(path, n, yaml.ScalarNode, "a number") {
				return
			}
			if tag := n.ShortTag(); tag != "!!int" && tag != "!!float" {
				r.bad(path, n, n.Value, "write a number such as 1.25, without quotes or unit", "is not a number")
				return
			}
			*to = take(r, path, n, func(field, s string) (sharing.Factor, error) { return sharing.ParseFactor(field, s, most) })
		},
		is: func() Type { return Type{Kind: KindNumber, Least: "1", Most: most.String()} },
		write: func() any {
			if *to == 0 {
				return nil
			}
			return &yaml.Node{Kind: yaml.ScalarNode, Value: to.String()} // its digits: a float would round them
		},
	}
}

// overcommit checks factors, and that the pool demands nothing that they take away.
func (c *checker) overcommit(path string, o sharing.Overcommit, p Pool) {
	one := func(name string, f, most sharing.Factor) {
		if f != 0 && (f < 100 || f > most) {
			c.bad(path+"."+name, "", "write 1 to "+most.String(), "is not a factor")
		}
	}
	one("memory", o.Memory, sharing.MaxMemoryFactor)
	one("compute", o.Compute, sharing.MaxComputeFactor)
	if o.Memory.More() && p.MinLevel >= sharing.LevelDriver {
		c.bad(path+".memory", o.Memory.String(), "leave it out, or demand client or less", "leaves no room for minEnforcement %s, by which neighbours cannot take what a grant has not used yet", p.MinLevel)
	}
	if (o.Memory.More() || o.Compute.More()) && !p.Offers(Mode.Shared) {
		c.bad(path, "", "leave it out", "is for fractions, and mode %s gives none", p.Mode)
	}
}
