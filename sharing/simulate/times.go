// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"math"
	"math/rand" //nolint:depguard // as in the fill, a run is repeated by its seed
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Times is how long something takes, as people write it in YAML.
type Times struct {
	// Distribution is constant, exponential, lognormal or uniform; exponential where it is left out.
	Distribution string `yaml:"distribution"`
	// Mean is of all but uniform, such as 30s or 6h.
	Mean string `yaml:"mean"`
	// Sigma is how wide a lognormal distribution is: the standard deviation of the logarithm; 1 where it is left out.
	Sigma float64 `yaml:"sigma"`
	// Min and Max bound a uniform distribution.
	Min string `yaml:"min"`
	Max string `yaml:"max"`
}

// distributions are the names of Times.
func distributions() []string { return []string{"constant", "exponential", "lognormal", "uniform"} }

// Variation is how a time varies around its mean. The zero value is exponential.
type Variation struct {
	// Distribution is a name of Times, or empty.
	Distribution string
	// Width is sigma of lognormal, and of uniform half the range in parts of the mean, 0 to 1.
	Width float64
}

// draw is a time with mean 1.
func (v Variation) draw(r *rand.Rand) float64 {
	switch v.Distribution {
	case "constant":
		return 1
	case "lognormal":
		return math.Exp(v.Width*r.NormFloat64() - v.Width*v.Width/2)
	case "uniform":
		return 1 + v.Width*(2*r.Float64()-1)
	}
	return r.ExpFloat64()
}

const (
	// widest is a sigma with which the longest of a million times is still believable.
	widest = 3
	// longest is the longest time that is believed, and shortest the shortest.
	longest  = 10 * 365 * 24 * time.Hour
	shortest = time.Millisecond
)

// times are a variation and its mean; the mean is 0 where none is given.
func (f *fields) times(name string, t Times) (Variation, time.Duration) {
	v := Variation{Distribution: cmp.Or(t.Distribution, "exponential")}
	switch v.Distribution {
	case "uniform":
		least, greatest := f.duration(name+".min", t.Min, 0), f.duration(name+".max", t.Max, shortest)
		if least > greatest || greatest == 0 {
			f.wrong(name+".max", t.Max, "write a max that is not below min")
			return v, 0
		}
		if t.Mean != "" {
			f.wrong(name+".mean", t.Mean, "leave it out: uniform has min and max")
		}
		v.Width = float64(greatest-least) / float64(greatest+least)
		return v, (greatest + least) / 2
	case "lognormal":
		v.Width = cmp.Or(t.Sigma, 1)
		if !(t.Sigma >= 0 && t.Sigma <= widest) {
			f.wrong(name+".sigma", t.Sigma, "write a number above 0 and at most 3")
		}
	case "constant", "exponential":
	default:
		f.wrong(name+".distribution", t.Distribution, "write one of "+strings.Join(distributions(), ", "))
	}
	if v.Distribution != "lognormal" && t.Sigma != 0 {
		f.wrong(name+".sigma", t.Sigma, "leave it out: only lognormal has one")
	}
	if t.Min+t.Max != "" {
		f.wrong(name+".min", t.Min+t.Max, "write mean: only uniform has min and max")
	}
	return v, f.duration(name+".mean", t.Mean, shortest)
}

func (f *fields) duration(name, v string, least time.Duration) time.Duration {
	if v == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < least || d > longest {
		f.wrong(name, v, "write a duration of at most ten years, such as 30s, 15m or 6h")
		return 0
	}
	return d
}

// Arriving is how the time between two pods varies, and the load: the GPU time that they want, in parts of what the
// nodes have. The load is 0 when the scenario does not say how often pods arrive. Errors are sharing.FieldError.
func (s *Scenario) Arriving(nodes []cluster.Node, pods []Pod) (Variation, float64, error) {
	f := fields{}
	varies, every := f.times("arrivals", s.Arrivals)
	if f.err != nil || every == 0 {
		return varies, 0, f.err
	}
	if _, mean := f.times("lifetimes", s.Lifetimes); mean == 0 {
		return varies, 0, sharing.Invalid("lifetimes.mean", "", "write how long a pod runs on average, such as 6h",
			"is missing")
	}
	capacity, demand := cluster.Milli(0), 0.0
	for i := range nodes {
		capacity += nodes[i].Free()
	}
	for i := range pods {
		demand += float64(pods[i].Demand()) * pods[i].life()
	}
	if capacity == 0 || len(pods) == 0 {
		return varies, 0, nil
	}
	return varies, demand / float64(len(pods)) / every.Hours() / float64(capacity), nil
}
