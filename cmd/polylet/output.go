package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

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
	if err := decodeJSON(raw, &value); err != nil {
		return fmt.Errorf("write the answer as JSON: %w", err)
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// decodeJSON decodes one JSON document, its numbers as they stand there: as a
// float64 a large integer would be another.
func decodeJSON(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one document")
	}
	return nil
}

// message is a gRPC message as a document.
func message(m proto.Message) func() ([]byte, error) {
	return func() ([]byte, error) { return protojson.Marshal(m) }
}

// visible writes text for a terminal: what containers, registries and manifests
// say is in it, and must not move the cursor, change colours or swap the order of
// what stands there. Characters that would are written as JSON writes them, so that
// a document stays the same document.
type visible struct {
	out io.Writer
	// part is the beginning of a character that the last Write ended with.
	part []byte
}

// asItIs is the writer below: for a container's own output.
func asItIs(out io.Writer) io.Writer {
	if v, ok := out.(*visible); ok {
		return v.out
	}
	return out
}

// Write implements io.Writer.
func (v *visible) Write(p []byte) (int, error) {
	text := append(v.part, p...)
	shown := make([]byte, 0, len(text))
	for len(text) > 0 && utf8.FullRune(text) {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\n' || r == '\t':
			shown = append(shown, byte(r))
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			shown = fmt.Appendf(shown, `\u%04x`, r)
		default: // what is no text becomes U+FFFD
			shown = utf8.AppendRune(shown, r)
		}
		text = text[size:]
	}
	v.part = bytes.Clone(text)
	if _, err := v.out.Write(shown); err != nil {
		return 0, err
	}
	return len(p), nil
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
