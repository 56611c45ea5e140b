// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package command is what the commands of kerf share: the process and the flags around them, and how they reach an
// agent or a cluster. It has exit statuses, forms of output, completion and signals. It knows no command.
package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kerf-gpu/kerf/internal/helptext"
)

// The exit statuses of every command but run, which adds those of a shell.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// DefaultDir is where the agent of a machine keeps its sockets.
const DefaultDir = "/run/kerf"

// App is what the commands have in common: the process around them, so that tests can put another in its
// place, and the global flags.
type App struct {
	In          io.Reader
	Out, ErrOut io.Writer
	// Getenv gives one variable of the environment, Environ all of them as "key=value".
	Getenv  func(string) string
	Environ func() []string
	// Screen belongs to Out, and ErrScreen to ErrOut. Nil means not a terminal.
	Screen, ErrScreen Screen
	// Exec replaces the process by a program; it returns only with an error.
	Exec func(path string, argv, env []string) error
	// Version is the version of the build. Registry has the images of a release; empty for that of the chart.
	Version, Registry string
	// Args is the command line as it came.
	Args []string
	// Dir is --run-dir.
	Dir string
	// Plugin is true when kubectl calls: as kubectl-kerf.
	Plugin bool
	// Kubeconfig is --kubeconfig, and Overrides are kubectl's other flags for the cluster.
	Kubeconfig string
	Overrides  clientcmd.ConfigOverrides
}

// pluginName is the file by which kubectl finds its command "kerf".
const pluginName = "kubectl-kerf"

// Name is what users type to get here.
func (a *App) Name() string {
	if a.Plugin {
		return "kubectl kerf"
	}
	return "kerf"
}

// Failure is an error with the exit status that it stands for. Errors of other kinds come from the parsing
// of the command line, and are wrong usage.
type Failure struct {
	Code int
	err  error
}

func (f *Failure) Error() string { return f.err.Error() }
func (f *Failure) Unwrap() error { return f.err }

// Exit is err as the end of a command with this exit status.
func Exit(code int, err error) *Failure { return &Failure{code, err} }

// Fail is err as the failure of a command; nil stays nil.
func Fail(err error) error {
	if err == nil {
		return nil
	}
	return Exit(ExitFailure, err)
}

// Misused is err as wrong usage.
func Misused(err error) error { return Exit(ExitUsage, err) }

// Family makes the commands of one part of the command line.
type Family = func(*App) []*cobra.Command

// Execute runs one command line of these commands, as Run does.
func (a *App) Execute(args []string, commands Family) (int, error) {
	return a.Run(a.Root(commands), args)
}

// Run runs one command line, says on stderr what went wrong, and returns the exit status.
func (a *App) Run(root *cobra.Command, args []string) (int, error) {
	a.Args = args
	root.SetArgs(args)
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.ErrOut)
	cmd, err := root.ExecuteC()
	if err == nil {
		return ExitOK, nil
	}
	code := ExitUsage
	var f *Failure
	if errors.As(err, &f) {
		code = f.Code
	}
	a.complain(cmd.CommandPath(), err)
	if code == ExitUsage && f == nil {
		_, _ = fmt.Fprintf(a.ErrOut, "%s: see %s --help\n", cmd.CommandPath(), cmd.CommandPath())
	}
	return code, err
}

// complain prints what is wrong, one line per error. It skips an error without text, which is already printed.
func (a *App) complain(command string, err error) {
	for l := range strings.Lines(err.Error()) {
		_, _ = fmt.Fprintf(a.ErrOut, "%s: %s\n", command, strings.TrimSuffix(l, "\n"))
	}
}

// Root is the command line's tree with these commands.
func (a *App) Root(commands Family) *cobra.Command {
	root := &cobra.Command{
		Use:   "kerf",
		Short: "Share NVIDIA GPUs between pods and processes",
		Long: `kerf shares NVIDIA GPUs between pods and processes, and shows who uses them.

On a machine it calls the kerf-agent. It uses a cluster if kubectl starts it as
kubectl-kerf, if a flag names a cluster, or if the machine has no agent. It also
accepts kubectl's other flags for the connection to a cluster.`,
		SilenceErrors: true, SilenceUsage: true, TraverseChildren: true,
		PersistentPreRunE: checkFlags,
		Version:           a.versionLine(),
	}
	helptext.WrapFlags(root, 80)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	dir := a.Getenv("KERF_DIR")
	if dir == "" {
		dir = DefaultDir
	}
	root.PersistentFlags().StringVar(&a.Dir, "run-dir", dir,
		"directory of the agent's sockets (environment: KERF_DIR)")
	if a.Plugin {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: a.Name()}
	}
	a.DefineConnection(root)
	root.AddCommand(commands(a)...)
	a.completionCommand(root)
	groupsOnly(root)
	root.SetHelpFunc(showHelp(root.HelpFunc()))
	return root
}

// versionLine is what --version prints.
func (a *App) versionLine() string {
	return fmt.Sprintf("kerf %s %s/%s %s", a.Version, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// VersionCommand is the long form of --version.
func (a *App) VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of kerf",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.Out, a.versionLine())
			return Fail(err)
		},
	}
}

// Exists tells a file that may not be executed from one in a directory that may not be searched.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
