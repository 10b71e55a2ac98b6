package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// Formats of -o beside the table.
const (
	formatJSON = "json"
	formatYAML = "yaml"
)

// outputFlag adds -o to a command that shows a table.
func outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringP("output", "o", "", "Show everything as json or yaml instead of a table.")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{formatJSON, formatYAML}, cobra.ShellCompDirectiveNoFileComp))
}

// structured writes document when -o was given; done says so.
func structured(cmd *cobra.Command, document func() ([]byte, error)) (done bool, err error) {
	format, _ := cmd.Flags().GetString("output")
	if format == "" {
		return false, nil
	}
	if !slices.Contains([]string{formatJSON, formatYAML}, format) {
		return true, fmt.Errorf("-o %s: use json or yaml", format)
	}
	raw, err := document()
	if err != nil {
		return true, err
	}
	return true, writeDocument(cmd.OutOrStdout(), format, raw)
}

// writeDocument writes a JSON document, indented or as YAML.
func writeDocument(out io.Writer, format string, raw []byte) error {
	if format == formatYAML {
		text, err := yaml.JSONToYAML(raw)
		if err != nil {
			return fmt.Errorf("write the answer as YAML: %w", err)
		}
		_, err = out.Write(text)
		return err
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return fmt.Errorf("write the answer as JSON: %w", err)
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// message is a gRPC message as a document.
func message(m proto.Message) func() ([]byte, error) {
	return func() ([]byte, error) { return protojson.Marshal(m) }
}

// completePods completes [NAMESPACE/]POD from the running node. Names in
// namespace default may stand alone.
func completePods(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	dir, _ := cmd.Flags().GetString("socket-dir")
	p, err := dialPodsync(dir)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer p.conn.Close()
	pods, err := p.list(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, pod := range pods {
		for _, name := range []string{pod.Namespace + "/" + pod.Name, pod.Name} {
			if strings.HasPrefix(name, typed) && (strings.Contains(name, "/") || pod.Namespace == "default") {
				names = append(names, name)
				break
			}
		}
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeContainers completes -c from the pod that the first argument names.
func completeContainers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	dir, _ := cmd.Flags().GetString("socket-dir")
	p, err := dialPodsync(dir)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer p.conn.Close()
	pod, err := p.find(cmd.Context(), args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return containerNames(pod), cobra.ShellCompDirectiveNoFileComp
}
