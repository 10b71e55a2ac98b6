package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/service"
)

func newConfigCommand() *cobra.Command {
	var of string
	var all bool
	cmd := inspectCommand("config", "Show the configuration that the services run with", cobra.NoArgs,
		func(cmd *cobra.Command, dir string, _ []string) error {
			config, others, err := askConfig(cmd.Context(), dir, of)
			if err != nil {
				return err
			}
			for _, name := range others {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s runs with another configuration than %s: polylet config --service=%s shows it\n", name, of, name)
			}
			if done, err := structured(cmd, func() ([]byte, error) { return config.GetKubeletConfigurationJson(), nil }); done {
				return err
			}
			return showConfig(cmd.OutOrStdout(), config, all)
		})
	cmd.Long = "Show the configuration in effect as a running service has it: flags, file and drop-ins over the defaults.\nThe table has the fields that were set, with who has set them, and those that differ from what a node without flags and files runs with; --all has all." +
		"\nBelow it stand the settings that do not do what they say, and why." +
		"\nA service without root reads a copy of the files; podsync's answer names the originals."
	cmd.Example = "  polylet config\n  polylet config -o yaml\n  polylet config --service=gateway --all"
	cmd.Flags().StringVar(&of, "service", service.Podsync, "Whose configuration.")
	cmd.Flags().BoolVar(&all, "all", false, "Fields with their default too.")
	_ = cmd.RegisterFlagCompletionFunc("service", cobra.FixedCompletions(service.All(), cobra.ShellCompDirectiveNoFileComp))
	outputFlag(cmd)
	cmd.AddCommand(newConfigValidateCommand(), newConfigDiffCommand(), newConfigExplainCommand(), newConfigRollbackCommand(), newConfigRetryCommand())
	return cmd
}

// askConfig gets a service's configuration, and the names of the services whose
// own differs. Services that are away are not asked about.
func askConfig(ctx context.Context, dir, of string) (config *commonv1.GetConfigResponse, others []string, err error) {
	if !slices.Contains(service.All(), of) {
		return nil, nil, fmt.Errorf("there is no service %s: use one of %v", of, service.All())
	}
	answers := make([]*commonv1.GetConfigResponse, len(service.All()))
	errs := make([]error, len(service.All()))
	var wg sync.WaitGroup
	for i, name := range service.All() {
		wg.Go(func() { answers[i], errs[i] = configOf(ctx, dir, name) })
	}
	wg.Wait()
	at := slices.Index(service.All(), of)
	if errs[at] != nil {
		return nil, nil, errs[at]
	}
	for i, name := range service.All() {
		if errs[i] == nil && !sameDocument(withoutFiles(answers[i].GetKubeletConfigurationJson()), withoutFiles(answers[at].GetKubeletConfigurationJson())) {
			others = append(others, name)
		}
	}
	return answers[at], others, nil
}

func configOf(ctx context.Context, dir, service string) (*commonv1.GetConfigResponse, error) {
	conn, err := dial(dir, service)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	resp, err := commonv1.NewCommonServiceClient(conn).GetConfig(ctx, &commonv1.GetConfigRequest{})
	if err != nil {
		return nil, explainCall(service, err)
	}
	resp.KubeletConfigurationJson = maskSecrets(resp.GetKubeletConfigurationJson())
	return resp, nil
}

// maskSecrets hides the values of HTTP headers, which the services show to root:
// a terminal is no place for them, and services without root do not have them.
func maskSecrets(document []byte) []byte {
	var fields map[string]any
	if decodeJSON(document, &fields) != nil {
		return document // who shows it says what is wrong
	}
	headers, hasHeaders := fields["staticPodURLHeader"].(map[string]any)
	from, hasURL := fields["staticPodURL"].(string)
	if !hasHeaders && !hasURL {
		return document
	}
	if hasURL {
		fields["staticPodURL"] = kubeletconfig.ShownURL(from)
	}
	for _, values := range headers {
		list, _ := values.([]any)
		for i := range list {
			list[i] = "<masked>"
		}
	}
	masked, err := json.Marshal(fields)
	if err != nil {
		return []byte("{}")
	}
	return masked
}

// withoutFiles leaves out of a configuration the files that the gateway may have
// copies of: it names the copies, the others the originals, on every node.
func withoutFiles(document []byte) []byte {
	var fields map[string]any
	if decodeJSON(document, &fields) != nil {
		return document
	}
	for _, name := range []string{"tlsCertFile", "tlsPrivateKeyFile"} {
		delete(fields, name)
	}
	if authentication, ok := fields["authentication"].(map[string]any); ok {
		delete(authentication, "x509")
	}
	plain, err := json.Marshal(fields)
	if err != nil {
		return document
	}
	return plain
}

func sameDocument(a, b []byte) bool {
	var x, y any
	return decodeJSON(a, &x) == nil && decodeJSON(b, &y) == nil && reflect.DeepEqual(x, y)
}

// showConfig lists fields with who has set them, beside what they are without
// flags and files.
func showConfig(out io.Writer, config *commonv1.GetConfigResponse, all bool) error {
	var fields, plain map[string]any
	if err := decodeJSON(config.GetKubeletConfigurationJson(), &fields); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	loaded, err := kubeletconfig.Load(nil)
	if err != nil {
		return fmt.Errorf("compute the default configuration: %w", err)
	}
	if err := decodeJSON(loaded.ConfigzJSON(), &plain); err != nil {
		return fmt.Errorf("read the default configuration: %w", err)
	}
	for name := range plain {
		if _, there := fields[name]; !there {
			fields[name] = nil
		}
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "FIELD\tVALUE\tWITHOUT FLAGS AND FILES\tSET BY")
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		origin, set := config.GetOrigins()[name]
		if !set {
			origin = "default"
		}
		if !all && !set && reflect.DeepEqual(fields[name], plain[name]) || name == "kind" || name == "apiVersion" {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, compact(fields[name]), compact(plain[name]), origin)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if lines := config.GetWithoutEffect(); len(lines) > 0 {
		fmt.Fprintln(out, "\nNot as it says:")
		for _, line := range lines {
			fmt.Fprintln(out, "  "+line)
		}
	}
	return nil
}

func compact(v any) string {
	if v == nil {
		return "-"
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}
