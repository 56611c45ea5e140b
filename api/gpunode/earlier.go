// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An upgrade of a cluster replaces its agents one by one. Until then, clients read statuses in two forms. The fields of
// the earlier form have the names below. The next release reads the present form only.

// UnmarshalJSON reads an object in either form.
func (o *Object) UnmarshalJSON(text []byte) error {
	var raw struct {
		Metadata     Metadata
		Spec, Status json.RawMessage
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return fmt.Errorf("read a GPUNode: %w", err)
	}
	var err error
	o.Metadata = raw.Metadata
	if o.Spec, err = ReadSpec(raw.Spec); err != nil {
		return err
	}
	o.Status, err = ReadStatus(raw.Status)
	return err
}

// ReadSpec reads a spec in either form. One that is absent or null is empty.
func ReadSpec(text []byte) (Spec, error) {
	if len(text) == 0 {
		return Spec{}, nil
	}
	var s struct {
		Spec

		Cordoned map[string]earlierCordon `json:"cordoned"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return Spec{}, fmt.Errorf("read the spec of a GPUNode: %w", err)
	}
	out := s.Spec
	for _, uuid := range slices.Sorted(maps.Keys(s.Cordoned)) {
		if !slices.ContainsFunc(s.CordonedGPUs, func(c Cordon) bool { return c.UUID == uuid }) {
			c := s.Cordoned[uuid]
			out = out.With(Cordon{UUID: uuid, Reason: c.Reason, By: c.By, Since: c.Since})
		}
	}
	return out, nil
}

// earlierCordon is a Cordon in a map by UUID.
type earlierCordon struct {
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	Since  string `json:"since,omitempty"`
}

// SpecPatch is a merge patch that replaces the cordons of a spec, in both forms: agents of the earlier release read
// the map. It has the other fields only if they change.
func SpecPatch(before, after Spec) map[string]any {
	earlier := map[string]*earlierCordon{}
	for _, c := range before.CordonedGPUs {
		earlier[c.UUID] = nil
	}
	list := []Cordon{}
	for _, c := range after.CordonedGPUs {
		list = append(list, c)
		earlier[c.UUID] = &earlierCordon{Reason: c.Reason, By: c.By, Since: c.Since}
	}
	patch := map[string]any{"cordonedGPUs": list, "cordoned": earlier}
	if before.DriverDrain != after.DriverDrain {
		patch["driverDrain"] = after.DriverDrain
	}
	if !slices.Equal(before.GrantMemory, after.GrantMemory) {
		patch["grantMemory"] = after.GrantMemory
	}
	return patch
}

// ReadStatus reads a status in either form. One that is absent or null is empty.
func ReadStatus(text []byte) (Status, error) {
	if len(text) == 0 {
		return Status{}, nil
	}
	var e earlierStatus
	var s Status
	err := json.Unmarshal(text, &s)
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	switch {
	case err != nil:
		return Status{}, fmt.Errorf("read the status of a GPUNode: %w", err)
	case e.Ready != nil: // every earlier status has it, and no present one
		e.convert(&s)
	}
	return s, nil
}

// earlierStatus has the fields of an earlier status whose names have changed.
type earlierStatus struct {
	Ready    *bool    `json:"ready"`
	NotReady []string `json:"notReady"`
	Config   *struct {
		Errors        []string `json:"mistakes"`
		LastKnownGood string   `json:"document"`
		Waiting       []struct {
			GPU  string            `json:"gpu"`
			What []string          `json:"what"`
			For  []string          `json:"for"`
			Has  map[string]string `json:"has"`
		} `json:"waiting"`
	} `json:"config"`
	Summary struct {
		Claims int    `json:"claims"`
		Config string `json:"config"`
	} `json:"summary"`
	GPUs     []earlierGPU     `json:"gpus"`
	Claims   []earlierGrant   `json:"claims"`
	Unplaced []PendingPod     `json:"unplaced"`
	Ending   []TerminatingPod `json:"ending"`
}

type earlierGPU struct {
	MemoryBytes   int64            `json:"memoryBytes"`
	UsableBytes   int64            `json:"usableBytes"`
	OldBurstBytes int64            `json:"lentBytes"`
	TurnsTo       string           `json:"turnsTo"`
	MaxSharers    int              `json:"maxSharers"`
	Gives         string           `json:"gives"`
	MIGState      *earlierMIGState `json:"migState"`
}

type earlierMIGState struct {
	Units    int        `json:"units"`
	Fixed    bool       `json:"fixed"`
	Most     []MIGCount `json:"most"`
	Waits    string     `json:"waits"`
	Trouble  string     `json:"trouble"`
	Geometry []struct {
		Most   int   `json:"most"`
		Size   int   `json:"size"`
		Starts []int `json:"starts"`
	} `json:"geometry"`
	Instances []struct {
		Size    int    `json:"size"`
		Foreign bool   `json:"foreign"`
		Claim   string `json:"claim"`
		For     string `json:"for"`
		Waits   string `json:"waits"`
	} `json:"instances"`
}

type earlierGrant struct {
	Grant

	InUse     bool    `json:"inUse"`
	OldShares []Share `json:"fragments"`
}

// convert writes the fields into a status that was read of the same text.
func (e *earlierStatus) convert(s *Status) {
	s.Conditions = e.conditions(s.DriverVersion != "")
	if e.Config != nil && s.Config != nil {
		s.Config.Errors, s.Config.LastKnownGood = e.Config.Errors, e.Config.LastKnownGood
		for _, w := range e.Config.Waiting {
			s.Config.Pending = append(s.Config.Pending,
				PendingSettings{GPU: w.GPU, Settings: w.What, BlockedBy: w.For, Current: w.Has})
		}
	}
	s.Summary.Grants = e.Summary.Claims
	s.Summary.Config = strings.NewReplacer("refused", "rejected", "waits", "pending").Replace(e.Summary.Config)
	for i := range e.GPUs {
		e.GPUs[i].convert(&s.GPUs[i])
	}
	for _, c := range e.Claims {
		g := c.Grant
		g.State, g.Shares = StateReserved, c.OldShares
		if c.InUse {
			g.State = StateActive
		}
		s.Grants = append(s.Grants, g)
	}
	s.PendingPods, s.TerminatingPods = e.Unplaced, e.Ending
}

func (e *earlierStatus) conditions(driver bool) []Condition {
	ready := Condition{Type: ConditionReady, Status: True, Reason: "AgentReady"}
	if !*e.Ready {
		ready = Condition{Type: ConditionReady, Status: False, Reason: "NotReady",
			Message: strings.Join(e.NotReady, "\n")}
	}
	answers := Condition{Type: ConditionDriverReady, Status: True, Reason: "DriverAnswers"}
	if !driver {
		answers.Status, answers.Reason = False, "NoDriver"
	}
	return []Condition{ready, answers}
}

func (e *earlierGPU) convert(g *GPU) {
	g.CapacityBytes, g.AllocatableBytes, g.BurstBytes = e.MemoryBytes, e.UsableBytes, e.OldBurstBytes
	g.SwitchableTo, g.MaxShares, g.Mode = e.TurnsTo, e.MaxSharers, e.Gives
	if g.Mode == "nothing" {
		g.Mode = ModeExcluded
	}
	if e.MIGState == nil || g.MIGState == nil {
		return
	}
	from, to := e.MIGState, g.MIGState
	to.MemorySlices, to.LayoutFromPool, to.MaxInstances = from.Units, from.Fixed, from.Most
	to.PendingReason, to.Error = from.Waits, from.Trouble
	for i, p := range from.Geometry {
		q := &to.Geometry[i]
		q.MaxInstances, q.MemorySlices, q.PlacementStarts = p.Most, p.Size, p.Starts
	}
	for i, p := range from.Instances {
		q := &to.Instances[i]
		q.MemorySlices, q.Managed, q.Grant, q.RequestedBy = p.Size, !p.Foreign, p.Claim, p.For
		q.PendingReason = p.Waits
	}
}
