package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/service"
)

// Exit codes of polylet config diff.
const (
	exitDiffers = 3
	exitRefused = 4
)

// newConfigValidateCommand is `polylet config validate`.
func newConfigValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE... [-- kubelet flags]",
		Short: "Say whether files are configurations that this machine takes",
		Long: "Say of each FILE, a KubeletConfiguration or a directory of drop-ins (*.conf), whether a node takes it, with the kubelet's flags behind -- on top." +
			"\nSettings that do not do what they say are named and are no fault. Nothing is asked of a running node, and nothing is changed." +
			"\nThe exit code is 1 when one of them is not valid.",
		Example: "  polylet config validate /var/lib/kubelet/config.yaml\n  polylet config validate new.yaml -- --max-pods=50",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, flags := args, []string(nil)
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				files, flags = args[:dash], args[dash:]
			}
			if len(files) == 0 {
				return errors.New("name a file")
			}
			var wrong []string
			for _, file := range files {
				if err := validateFile(cmd.OutOrStdout(), file, flags); err != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", file, err)
					wrong = append(wrong, file)
				}
			}
			if len(wrong) > 0 {
				return fmt.Errorf("not valid: %s", strings.Join(wrong, ", "))
			}
			return nil
		},
	}
}

// fileFlag is how a file, or a directory of drop-ins, is given to a kubelet.
func fileFlag(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}
	if info.IsDir() {
		return "--config-dir=" + path, nil
	}
	return "--config=" + path, nil
}

func validateFile(out io.Writer, file string, flags []string) error {
	flag, err := fileFlag(file)
	if err != nil {
		return err
	}
	loaded, err := kubeletconfig.Load(append([]string{flag}, flags...))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: valid\n", file)
	for _, n := range loaded.WithoutEffect() {
		if !n.Default {
			fmt.Fprintf(out, "  %s\n", n)
		}
	}
	return nil
}

// newConfigDiffCommand is `polylet config diff`.
func newConfigDiffCommand() *cobra.Command {
	cmd := inspectCommand("diff FILE [DROPINS]", "Show what would change on a running node if its file were FILE", cobra.RangeArgs(1, 2),
		func(cmd *cobra.Command, dir string, args []string) error {
			config, _, err := askConfig(cmd.Context(), dir, service.Podsync)
			if err != nil {
				return err
			}
			before, err := kubeletconfig.ShownFields(config.GetKubeletConfigurationJson())
			if err != nil {
				return fmt.Errorf("read the configuration that runs: %w", err)
			}
			var flags []string
			for _, path := range args {
				flag, err := fileFlag(path)
				if err != nil {
					return err
				}
				flags = append(flags, flag)
			}
			loaded, err := kubeletconfig.Load(flags)
			if err != nil {
				return err
			}
			after, err := kubeletconfig.ShownFields(maskSecrets(loaded.ConfigzJSON()))
			if err != nil {
				return err
			}
			return showDifference(cmd.OutOrStdout(), cmd.ErrOrStderr(), configslice.Difference(before, after), config.GetOrigins())
		})
	cmd.Long = "Show the fields that FILE, with the directory DROPINS over it, would change on the running node, which services would be started again for it, and what a running node cannot change." +
		"\nFields that the node's command line sets, or a ConfigMap of the cluster, stay as they are: both go before files." +
		fmt.Sprintf("\nThe exit code is 0 when nothing would change, %d when something would, %d when a running node cannot take it, 1 when FILE is not valid or nobody answers.", exitDiffers, exitRefused)
	cmd.Example = "  polylet config diff new.yaml\n  polylet config diff new.yaml /etc/kubernetes/kubelet.conf.d"
	return cmd
}

// showDifference prints what differs, and ends with diff's exit code.
func showDifference(out, notes io.Writer, differs []configslice.Change, origins map[string]string) error {
	var changes []configslice.Change
	for _, c := range differs {
		top, _, _ := strings.Cut(c.Path, ".")
		if from := origins[top]; strings.HasPrefix(from, "flag ") || strings.HasPrefix(from, "ConfigMap ") {
			fmt.Fprintf(notes, "%s stays %s: %s goes before the file\n", c.Path, c.Old, from)
			continue
		}
		changes = append(changes, c)
	}
	if len(changes) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "FIELD\tRUNS\tWOULD\tSTARTED AGAIN")
	for _, c := range changes {
		who := strings.Join(c.Owners, ", ")
		switch {
		case c.Refused != "":
			who = "refused: " + c.Refused
		case c.InPlace:
			who = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", c.Path, c.Old, c.New, orDash(who))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if configslice.Refusal(changes) != nil {
		return daemon.ExitError{Code: exitRefused}
	}
	return daemon.ExitError{Code: exitDiffers}
}

// newConfigExplainCommand is `polylet config explain`.
func newConfigExplainCommand() *cobra.Command {
	cmd := inspectCommand("explain FIELD", "Say what a field does, who uses it, who has set it, and whether it changes live", cobra.ExactArgs(1),
		func(cmd *cobra.Command, dir string, args []string) error {
			path := args[0]
			fields := configslice.Effects()
			if _, known := fields[path]; !known {
				return unknownField(path, fields)
			}
			plain, err := kubeletconfig.Load(nil)
			if err != nil {
				return fmt.Errorf("compute the default configuration: %w", err)
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "field    %s\ndefault  %s\n", path, plain.Fields()[path])
			if config, _, err := askConfig(cmd.Context(), dir, service.Podsync); err == nil {
				runs, err := kubeletconfig.ShownFields(config.GetKubeletConfigurationJson())
				if err != nil {
					return fmt.Errorf("read the configuration that runs: %w", err)
				}
				top, _, _ := strings.Cut(path, ".")
				fmt.Fprintf(out, "runs     %s\nset by   %s\n", runs[path], orDefault(config.GetOrigins()[top]))
			} else {
				fmt.Fprintf(out, "runs     not known: %s\n", oneLine(err.Error()))
			}
			return explainField(out, path)
		})
	cmd.Example = "  polylet config explain maxPods\n  polylet config explain logging.verbosity"
	return cmd
}

func orDefault(origin string) string {
	if origin == "" {
		return "nobody: it is the default"
	}
	return origin
}

// explainField prints what is the same on all nodes.
func explainField(out io.Writer, path string) error {
	fields := configslice.Effects()
	owners, _ := configslice.Owners(path)
	fmt.Fprintf(out, "used by  %s\n", orDash(strings.Join(owners, ", ")))
	switch refused := configslice.Fixed()[path]; {
	case refused != "":
		fmt.Fprintf(out, "changes  not while the node runs: %s\n", refused)
	case len(owners) == 0:
		fmt.Fprintln(out, "changes  live; nothing is started again")
	case slices.Contains(configslice.InPlace(), path):
		fmt.Fprintln(out, "changes  live, in place; nothing is started again")
	default:
		fmt.Fprintf(out, "changes  live; %s start again, and no container does\n", strings.Join(owners, ", "))
	}
	effect := fields[path]
	switch {
	case effect.State == kubeletconfig.Used && effect.Lacks != "":
		fmt.Fprintf(out, "effect   a part: %s\n", effect.Lacks)
	case effect.State != kubeletconfig.Used:
		fmt.Fprintf(out, "effect   none: %s\n", effect.Who)
	}
	_, err := fmt.Fprintln(out, "meaning  https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/")
	return err
}

// unknownField names fields that may have been meant.
func unknownField(path string, fields map[string]kubeletconfig.Effect) error {
	var near []string
	for name := range fields {
		if strings.Contains(strings.ToLower(name), strings.ToLower(path)) || strings.HasPrefix(name, path+".") {
			near = append(near, name)
		}
	}
	slices.Sort(near)
	if len(near) == 0 {
		return fmt.Errorf("there is no field %s: polylet config --all lists them", path)
	}
	return fmt.Errorf("there is no field %s; there are %s", path, strings.Join(near, ", "))
}

// newConfigRequestCommand asks polylet run for something, by a file that only root can
// write.
func newConfigRequestCommand(name, short, long, request string) *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir := keptDir(root)
			if _, err := os.Stat(dir); err != nil {
				return fmt.Errorf("no configuration is kept here: %w: polylet run keeps them, unless it has --live-config=false; pass --root-dir if the node has another, and be root", err)
			}
			if err := fsatomic.WriteFile(filepath.Join(dir, requestFile), []byte(request+"\n"), 0o600); err != nil {
				return fmt.Errorf("ask polylet run: %w", err)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "polylet run is asked; polylet status says how it stands")
			return err
		},
	}
	cmd.Flags().StringVar(&root, "root-dir", "/var/lib/kubelet", "The node's --root-dir.")
	return cmd
}

func newConfigRollbackCommand() *cobra.Command {
	return newConfigRequestCommand("rollback", "Go back to the configuration before the one that runs",
		"Go back: to the last known good configuration while a new one is tried, else to the one that was good before it. The one that is left counts as bad: the files may go on saying it, and it is taken again when they change or with polylet config retry.",
		requestRollback)
}

func newConfigRetryCommand() *cobra.Command {
	return newConfigRequestCommand("retry", "Try again what the files say, though it was bad before",
		"Forget which configurations were bad, and try what the files say.", requestRetry)
}
