// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreScore implements fwk.PreScorePlugin: pods that ask for nothing of Kerf's are scored by others alone.
func (*Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if cycleOf(state) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score implements fwk.ScorePlugin. NormalizeScore makes of it what the framework takes.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	c := cycleOf(state)
	if c == nil {
		return 0, nil
	}
	free := freeCPU(node)
	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	score := p.core.books.Score(c.want, node.Node().Name, free, p.core.now())
	c.scores[node.Node().Name], c.free[node.Node().Name] = score, free
	return score, nil
}

// ScoreExtensions implements fwk.ScorePlugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore implements fwk.ScoreExtensions. The best node, of equally good ones the first by name, gets all points;
// the others at most half, by their distance from the best: no sum of other plugins' points makes up for that, and the
// framework, which decides ties by chance, never has to.
func (*Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	if len(scores) == 0 {
		return nil
	}
	best, least := 0, scores[0].Score
	for i, s := range scores {
		least = min(least, s.Score)
		if top := scores[best]; s.Score > top.Score || s.Score == top.Score && s.Name < top.Name {
			best = i
		}
	}
	most := scores[best].Score
	for i := range scores {
		if i == best {
			continue
		}
		const half = fwk.MaxScore / 2
		if most == least {
			scores[i].Score = half
		} else {
			scores[i].Score = half - int64(float64(half)*(float64(most)-float64(scores[i].Score))/(float64(most)-float64(least)))
		}
	}
	scores[best].Score = fwk.MaxScore
	return nil
}
