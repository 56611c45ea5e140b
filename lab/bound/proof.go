// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"math"
	"math/big"
)

// unit is a GPU in the integers of a proof, and dearest the highest price in it: one of more says nothing.
const (
	unit    = 1e12
	dearest = 1e16
)

// proves reports that the prices are a proof. They price each share, and the CPU and the memory of each kind of node. A
// GPU is worth the best that can be on it beyond what that costs in CPU and memory. The proof holds if all that is
// wanted is worth more than all GPUs, CPU and memory together. If everything could be placed it would be worth no more.
// Nothing here depends on how the prices were found.
func (s *search) proves(prices []float64) bool {
	type cost struct{ cpu, memory int64 } // of a thousandth of a core, of a MiB
	costs := make([]cost, len(s.kinds))
	for k, kind := range s.kinds {
		row := prices[k*perKind : (k+1)*perKind]
		costs[k] = cost{whole(row[ofCPU] / float64(max(1, kind.cpu))),
			whole(row[ofMemory] / float64(max(1, kind.memory)))}
	}
	// least is what CPU and memory cost that a share takes on a kind, rounded down.
	least := func(k int, it *item) *big.Int {
		sum := times(costs[k].cpu, it.cpu)
		sum.Add(sum, times(costs[k].memory, it.memory))
		return sum.Div(sum, big.NewInt(it.units))
	}
	value := make([]*big.Int, len(s.list))
	wanted := new(big.Int)
	for i := range s.list {
		it := &s.list[i]
		value[i] = big.NewInt(whole(it.size - prices[s.row(i)]))
		for k := range s.kinds {
			// A request without a GPU is worth no more than the CPU and memory that it takes where they are cheapest.
			if it.share[k] == 0 && value[i].Cmp(least(k, it)) > 0 {
				value[i] = least(k, it)
			}
		}
		wanted.Add(wanted, new(big.Int).Mul(value[i], big.NewInt(it.wanted)))
	}
	room := new(big.Int)
	for k, kind := range s.kinds {
		worth := make([]*big.Int, len(s.fill.shares))
		for i := range s.list {
			it := &s.list[i]
			if it.share[k] <= 0 {
				continue
			}
			more := new(big.Int).Sub(value[i], least(k, it))
			if at := s.fill.at[it.share[k]]; worth[at] == nil || more.Cmp(worth[at]) > 0 {
				worth[at] = more
			}
		}
		each := s.fill.exactly(worth)
		each.Mul(each, big.NewInt(kind.gpus))
		each.Add(each, times(costs[k].cpu, kind.cpu))
		each.Add(each, times(costs[k].memory, kind.memory))
		room.Add(room, each.Mul(each, big.NewInt(kind.nodes)))
	}
	return wanted.Cmp(room) > 0
}

// whole is a price in units; anything may be a price that is not below 0.
func whole(price float64) int64 { return int64(math.Round(min(max(0, price*unit), dearest))) }

func times(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

// exactly is fill in integers, for what may be nil where there is no such share.
func (k *knapsack) exactly(worth []*big.Int) *big.Int {
	most := make([]*big.Int, len(k.worth))
	most[0] = new(big.Int)
	for c := 1; c < len(most); c++ {
		most[c] = most[c-1]
		for i, cells := range k.shares {
			if cells > c {
				break
			}
			if worth[i] == nil {
				continue
			}
			if with := new(big.Int).Add(most[c-cells], worth[i]); with.Cmp(most[c]) > 0 {
				most[c] = with
			}
		}
	}
	return new(big.Int).Set(most[len(most)-1])
}
