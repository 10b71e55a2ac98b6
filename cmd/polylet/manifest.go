package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync"
)

// manifestAnswer is what `polylet manifest -o json` prints for each file, one line each.
type manifestAnswer struct {
	File string `json:"file"`
	// Pod is what the node would run.
	Pod *v1.Pod `json:"pod,omitempty"`
	// Ignored says what of the file does not count.
	Ignored string `json:"ignored,omitempty"`
	// Error says why nothing would run.
	Error string `json:"error,omitempty"`
}

// newManifestCommand is `polylet manifest`: a look at static pods before they
// are put in place.
func newManifestCommand() *cobra.Command {
	var node, format string
	cmd := &cobra.Command{
		Use:   "manifest FILE...",
		Short: "Check manifests of static pods, and show what a node would make of them",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if format != "text" && format != "json" {
				return fmt.Errorf("--output %q: use text or json", format)
			}
			wrong := 0
			for _, file := range files {
				answer := checkManifest(node, file)
				if answer.Error != "" {
					wrong++
				}
				if err := showManifest(cmd.OutOrStdout(), format, answer); err != nil {
					return err
				}
			}
			if wrong > 0 {
				return fmt.Errorf("%d of %d manifests would not run", wrong, len(files))
			}
			return nil
		},
	}
	host, _ := os.Hostname()
	cmd.Flags().StringVar(&node, "node-name", host, "the node's name, which is appended to the pod's")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text, or json with the pod that would run, one line for each file")
	return cmd
}

func checkManifest(node, file string) manifestAnswer {
	answer := manifestAnswer{File: file}
	path, err := filepath.Abs(file)
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err == nil {
		answer.Pod, answer.Ignored, err = podsync.CheckManifest(node, path, data)
	}
	if err != nil {
		answer.Pod, answer.Error = nil, err.Error()
	}
	return answer
}

func showManifest(w io.Writer, format string, answer manifestAnswer) error {
	if format == "json" {
		return json.NewEncoder(w).Encode(answer)
	}
	text := "is good"
	switch {
	case answer.Error != "":
		text = answer.Error
	case answer.Ignored != "":
		text = "is good, but not all of it counts: " + answer.Ignored
	}
	_, err := fmt.Fprintf(w, "%s: %s\n", answer.File, text)
	return err
}
