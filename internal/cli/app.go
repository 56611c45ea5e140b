// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
)

// The exit statuses of every command but run, which adds those of a shell.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// defaultDir is where the agent of a machine keeps its sockets.
const defaultDir = "/run/kerf"

// app is what the commands have in common: the process around them, so that tests can put another in its
// place, and the global flags.
type app struct {
	in          io.Reader
	out, errOut io.Writer
	getenv      func(string) string
	environ     func() []string
	// screen is that of out, errScreen that of errOut; nil where nobody asks.
	screen, errScreen screen
	exec              func(path string, argv, env []string) error
	// args is the command line as it came.
	args []string
	// dir is --dir.
	dir string
	// plugin is true when kubectl calls: as kubectl-kerf.
	plugin bool
	// kubeconfig is --kubeconfig, and overrides are kubectl's other flags for the cluster.
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// pluginName is the file by which kubectl finds its command "kerf".
const pluginName = "kubectl-kerf"

// name is what users type to get here.
func (a *app) name() string {
	if a.plugin {
		return "kubectl kerf"
	}
	return "kerf"
}

// failure is an error with the exit status that it stands for. Errors of other kinds come from the parsing
// of the command line, and are wrong usage.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// fail is err as the failure of a command; nil stays nil.
func fail(err error) error {
	if err == nil {
		return nil
	}
	return &failure{exitFailure, err}
}

// misused is err as wrong usage.
func misused(err error) error { return &failure{exitUsage, err} }

// main runs one command line, says on stderr what went wrong, and returns the exit status.
func (a *app) main(args []string) (int, error) {
	a.args = args
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitOK, nil
	}
	code := exitUsage
	var f *failure
	if errors.As(err, &f) {
		code = f.code
	}
	a.complain(cmd.CommandPath(), err)
	if code == exitUsage && f == nil {
		_, _ = fmt.Fprintf(a.errOut, "%s: see %s --help\n", cmd.CommandPath(), cmd.CommandPath())
	}
	return code, err
}

// complain says what is wrong, one line per mistake; an error without text has been said already.
func (a *app) complain(command string, err error) {
	for l := range strings.Lines(err.Error()) {
		_, _ = fmt.Fprintf(a.errOut, "%s: %s\n", command, strings.TrimSuffix(l, "\n"))
	}
}

// root is the command line's tree.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kerf",
		Short: "Pieces of a GPU for processes, held to their size",
		Long: "kerf runs programs on pieces of GPUs and shows who holds what.\n\n" +
			"It asks the kerf-agent of this machine; or the cluster, where kubectl calls it (as kubectl-kerf), where a flag names the\n" +
			"cluster, and where no agent is on this machine. The other flags of kubectl for reaching a cluster are taken as well.",
		SilenceErrors: true, SilenceUsage: true, TraverseChildren: true,
		Args: cobra.NoArgs,
		// Without a command there is nothing to do but to say what there is.
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	dir := a.getenv("KERF_DIR")
	if dir == "" {
		dir = defaultDir
	}
	root.PersistentFlags().StringVar(&a.dir, "dir", dir, "directory of the agent's sockets (environment: KERF_DIR)")
	if a.plugin {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: a.name()}
	}
	a.defineConnection(root)
	root.AddCommand(a.drainCommand(), a.runCommand(), a.ociCommand(), a.statusCommand(), a.limitCommand(), a.metricsCommand(), a.topCommand(), a.migCommand(), a.configCommand(), a.auditCommand(), a.usageCommand(), a.translateCommand(), a.doctorCommand(), a.explainCommand(), a.simulateCommand(), a.versionCommand())
	a.completionCommand(root)
	return root
}
