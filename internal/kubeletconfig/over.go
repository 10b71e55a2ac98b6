package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// mostOver bounds a document over the files, in bytes: real ones have a few kB, and what
// is held while one is read may be a thousand times as much.
const mostOver = 64 << 10

// yamlAnchor is what every anchor in YAML has, and without one nothing is repeated: some
// kB that repeat others are gigabytes as JSON. A comment may have it too (R&D).
var yamlAnchor = regexp.MustCompile(`&[0-9A-Za-z_-]`)

// hugeExponent is a quantity of which Kubernetes' parser makes a number of thousands of
// digits or of billions: it takes minutes, and the machine's memory.
var hugeExponent = regexp.MustCompile(`^[+-]?[0-9.]*[eE][+-]?[0-9]{4,}$`)

// readable says what of decoded JSON must not be read as what it is.
func readable(value any) error {
	switch value := value.(type) {
	case string:
		if hugeExponent.MatchString(strings.TrimSpace(value)) {
			return fmt.Errorf("the exponent of %.40q is too large", value)
		}
	case []any:
		for _, v := range value {
			if err := readable(v); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if err := readable(value[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Over is a document that lies over the files and under the flags, of somebody who is not
// this node's operator.
type Over struct {
	// Name is who sets its fields, as Origins says it: "ConfigMap kube-system/nodes".
	Name string
	// Document is a KubeletConfiguration in YAML or JSON; fields that it does not have
	// stay as they are.
	Document []byte
}

// Sum is a checksum of its document, whoever it is of; empty for nil.
func (o *Over) Sum() string {
	if o == nil {
		return ""
	}
	return Sum(o.Document)
}

// LoadOver is LoadAgain with a document over the files; nil: none.
func LoadOver(args []string, over *Over) (*Loaded, error) {
	return loadReading(thisHost(), args, nil, &reading{from: origins{}, log: logr.Discard(), over: over})
}

// OverSum is that of the document over the files (Over.Sum) with which it was loaded;
// empty when there was none.
func (l *Loaded) OverSum() string { return l.overSum }

// layOver puts the document over what the files say.
func (r *reading) layOver(config *kubeletv1beta1.KubeletConfiguration) (*kubeletv1beta1.KubeletConfiguration, error) {
	if n := len(r.over.Document); n > mostOver {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d that a configuration may have", r.over.Name, n, mostOver)
	}
	if anchor := yamlAnchor.Find(r.over.Document); anchor != nil {
		return nil, fmt.Errorf("%s has an anchor (%s…), with which YAML repeats what stands elsewhere: write it out, and leave a space behind each other &", r.over.Name, anchor)
	}
	var said any
	if document, _, err := toJSON(r.over.Document); err == nil && json.Unmarshal(document, &said) == nil { // else merging says what is wrong
		if err := readable(said); err != nil {
			return nil, fmt.Errorf("%s: %w", r.over.Name, err)
		}
	}
	merged, err := mergeDocument(config, r.over.Name, r.over.Name, r.over.Document, r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.over.Name, err)
	}
	return merged, nil
}
