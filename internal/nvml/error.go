// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// Error is what an NVML function answered. It wraps the word of package sharing that the code means.
type Error struct {
	// Func is the function's name, such as nvmlDeviceGetMemoryInfo.
	Func string
	// Code is NVML's return code (nvmlReturn_t), never 0.
	Code int
	// Text says what the code means. It is this package's own, since asking the library is one more call
	// that may hang.
	Text string
}

// Error returns function, meaning and code.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s (code %d)", e.Func, e.Text, e.Code) }

// Unwrap returns the sharing sentinel that the code stands for.
func (e *Error) Unwrap() error {
	_, word := meaning(e.Func, nvml.Return(e.Code)) //nolint:gosec // it was one
	return word
}

// Lack is what this process lacks of the driver, as far as an error of Open tells.
type Lack int

const (
	// LackNone is a driver that fails in another way, or hangs.
	LackNone Lack = iota
	// LackLibrary is that no usable library was found.
	LackLibrary
	// LackDevices is a library that does not reach the kernel's side through its device files. The driver is not
	// loaded, or this process has no such files, or may not open them.
	LackDevices
)

// errNoLibrary is in each error of Open that found no library.
var errNoLibrary = errors.New("no usable NVIDIA management library")

// LackOf tells it of an error of Open.
func LackOf(err error) Lack {
	if errors.Is(err, errNoLibrary) {
		return LackLibrary
	}
	if e, ok := errors.AsType[*Error](err); ok {
		switch nvml.Return(e.Code) { //nolint:gosec // it was one
		case nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_NO_PERMISSION, nvml.ERROR_UNKNOWN:
			return LackDevices
		}
	}
	return LackNone
}

// check turns a return code into an error; nil for success.
func check(function string, code nvml.Return) error {
	if code == nvml.SUCCESS {
		return nil
	}
	text, _ := meaning(function, code)
	return &Error{Func: function, Code: int(code), Text: text}
}

// absent is the error for a function that the loaded library does not have.
func absent(function string) error { return check(function, nvml.ERROR_FUNCTION_NOT_FOUND) }

// meaning is what a code means that the function returned.
func meaning(function string, code nvml.Return) (text string, word error) {
	if text, ok, word := ofLimits(function, code); ok {
		return text, word
	}
	switch code {
	case nvml.ERROR_UNINITIALIZED:
		return "the library is not initialised", sharing.ErrUnavailable
	case nvml.ERROR_INVALID_ARGUMENT:
		return "an argument is not accepted", sharing.ErrInvalid
	case nvml.ERROR_NOT_SUPPORTED:
		return "not supported by this GPU or driver", sharing.ErrUnsupported
	case nvml.ERROR_NO_PERMISSION:
		return "root is needed", sharing.ErrDenied
	case nvml.ERROR_NOT_FOUND:
		return "no such object", sharing.ErrNotFound
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "the NVIDIA kernel driver is not loaded", sharing.ErrUnavailable
	case nvml.ERROR_TIMEOUT:
		return "timed out in the driver", sharing.ErrUnavailable
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return "the library cannot be loaded", sharing.ErrUnavailable
	case nvml.ERROR_FUNCTION_NOT_FOUND:
		return "this driver's library does not have it", sharing.ErrUnsupported
	case nvml.ERROR_GPU_IS_LOST:
		return "the GPU is lost: it fell off the bus or cannot be reached", sharing.ErrLost
	case nvml.ERROR_RESET_REQUIRED:
		return "the GPU needs a reset", sharing.ErrUnavailable
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "the library and the loaded kernel driver are of different versions; reload the driver or reboot, " +
			"then restart this process", sharing.ErrUnavailable
	case nvml.ERROR_IN_USE:
		return "in use", sharing.ErrUnavailable
	case nvml.ERROR_MEMORY, nvml.ERROR_INSUFFICIENT_RESOURCES:
		return "the driver has not enough free memory for it", sharing.ErrExhausted
	case nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_DEPRECATED:
		return "this driver does not know this form of the call", sharing.ErrUnsupported
	}
	return "the driver could not do it", sharing.ErrUnavailable
}
