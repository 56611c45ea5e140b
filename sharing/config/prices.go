// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// Prices are what use costs; the zero value has none.
type Prices struct {
	// Currency is its name, such as EUR.
	Currency string `yaml:"currency"`
	// PerKWh is the price of a kilowatt hour, 0 for none.
	PerKWh float64 `yaml:"perKWh"`
	// PerGPUHour are the prices of an hour of a whole GPU: the first whose model fits counts.
	PerGPUHour []GPUPrice `yaml:"perGPUHour"`
}

// GPUPrice is the price of an hour of a whole GPU of the models that a glob names.
type GPUPrice struct {
	Model string  `yaml:"model"`
	Price float64 `yaml:"price"`
}

// MaxPrice is the highest price.
const MaxPrice = 1e9

// Of is the price of an hour of a whole GPU of the model; ok is false where there is none.
func (p Prices) Of(model string) (price float64, ok bool) {
	for _, g := range p.PerGPUHour {
		if sharing.MatchModels([]string{g.Model}, model) {
			return g.Price, true
		}
	}
	return 0, false
}

// Prices are those of the config.
func (c Config) Prices() Prices {
	p := c.doc.Prices
	p.PerGPUHour = slices.Clone(p.PerGPUHour)
	return p
}

// PricesIn are those that hold in a pool.
func (c Config) PricesIn(pool Pool) Prices {
	p := c.Prices()
	if pool.PerGPUHour != 0 {
		p.PerGPUHour = slices.Insert(p.PerGPUHour, 0, GPUPrice{Model: "*", Price: pool.PerGPUHour})
	}
	return p
}

func (p Prices) none() bool { return p.Currency == "" && p.PerKWh == 0 && len(p.PerGPUHour) == 0 }

func parsePrice(field, s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v < 0 || v > MaxPrice || math.IsNaN(v) {
		return 0, sharing.Invalid(field, s, "write a number such as 2.50", "is not a price")
	}
	return v, nil
}

// price reads a number as it is written.
func (r *reader) price(path string, n *yaml.Node) float64 {
	if !r.is(path, n, yaml.ScalarNode, "a number") {
		return 0
	}
	if tag := n.ShortTag(); tag != "!!int" && tag != "!!float" {
		r.bad(path, n, n.Value, "write a number such as 2.50, without quotes or unit", "is not a number")
		return 0
	}
	return take(r, path, n, parsePrice)
}

func (p *Prices) fields() fields {
	return named(p, fields{
		text(&p.Currency, "The name of the currency.").like("EUR").must(),
		number(&p.PerKWh, "The price of a kilowatt-hour.").like("0.30").rename("kWh"),
		objects(&p.PerGPUHour, (*GPUPrice).fields,
			"Prices of an hour of a whole GPU. The first entry with a matching model counts.").rename("gpuHour"),
	})
}

func (g *GPUPrice) fields() fields {
	return named(g, fields{
		text(&g.Model, "A glob for the GPU model.").like("*H100*").must(),
		number(&g.Price, "The price of an hour.").like("2.50").def("0").keep(),
	})
}

func (c *checker) prices(path string, p Prices) {
	if p.none() {
		return
	}
	if p.Currency == "" || len(p.Currency) > 16 {
		c.bad(path+".currency", p.Currency, "write its name, such as EUR", "is not the name of a currency")
	}
	wrong := func(v float64) bool { return !(v >= 0 && v <= MaxPrice) }
	if wrong(p.PerKWh) {
		c.bad(path+".perKWh", "", "write a number such as 0.30", "is not a price")
	}
	for i, g := range p.PerGPUHour {
		where := at(path+".perGPUHour", i)
		if err := sharing.CheckGlob(where+".model", g.Model); err != nil {
			c.all(err)
		}
		if wrong(g.Price) {
			c.bad(where+".price", "", "write a number such as 2.50", "is not a price")
		}
	}
}
