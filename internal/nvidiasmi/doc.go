// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nvidiasmi is the door to the program nvidia-smi, for the one thing that Kerf wants of a GPU and no call of NVML
// does: its time slice (nvidia-smi compute-policy).
//
// It promises that a call ends by its deadline, whatever the program does; that at most one of it runs at a time, and
// a second is not started while one that was to be killed still hangs in the driver; and that a time slice which was
// set is read back.
//
// Not promised: that a read always tells. The program's output is made for people, and may change; a read that is not
// understood is sharing.ErrUnsupported, and never a guess.
package nvidiasmi
