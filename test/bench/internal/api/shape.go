package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// series is one line of a metrics document; at is zero without a time.
type series struct {
	name   string
	labels map[string]string
	at     time.Time
}

// parseSeries reads a line such as `name{a="b"} 1 1700000000000`.
func parseSeries(line string) (series, error) {
	s := series{labels: map[string]string{}}
	end := strings.IndexAny(line, "{ ")
	if end <= 0 {
		return s, fmt.Errorf("line %q is no series", line)
	}
	rest := line[end:]
	s.name = line[:end]
	if strings.HasPrefix(rest, "{") {
		var err error
		if rest, err = s.parseLabels(rest[1:]); err != nil {
			return s, fmt.Errorf("line %q: %w", line, err)
		}
	}
	words := strings.Fields(rest)
	if len(words) == 2 {
		at, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return s, fmt.Errorf("line %q: %w", line, err)
		}
		s.at = time.UnixMilli(at)
	}
	if len(words) == 0 || len(words) > 2 {
		return s, fmt.Errorf("line %q has %d words behind its labels", line, len(words))
	}
	return s, nil
}

// parseLabels reads up to the closing brace and returns what follows it.
func (s *series) parseLabels(text string) (rest string, err error) {
	for {
		text = strings.TrimLeft(text, ", ")
		if after, ok := strings.CutPrefix(text, "}"); ok {
			return after, nil
		}
		name, after, ok := strings.Cut(text, "=")
		if !ok {
			return "", fmt.Errorf("no = in %q", text)
		}
		quoted, err := strconv.QuotedPrefix(after)
		if err != nil {
			return "", fmt.Errorf("label %s: %w", name, err)
		}
		if s.labels[name], err = strconv.Unquote(quoted); err != nil {
			return "", fmt.Errorf("label %s: %w", name, err)
		}
		text = after[len(quoted):]
	}
}

func countSeries(body []byte) int {
	n := 0
	for line := range strings.Lines(string(body)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			n++
		}
	}
	return n
}

// textShape lists the types of all families, and each series' name with the
// names of its labels; labels without a value are not counted.
func textShape(body []byte) (map[string]bool, error) {
	shape := map[string]bool{}
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		if kind, ok := strings.CutPrefix(line, "# TYPE "); ok {
			shape["type "+kind] = true
		}
		if line == "" || line[0] == '#' {
			continue
		}
		s, err := parseSeries(line)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(s.labels, func(_, value string) bool { return value == "" })
		shape[s.name+"{"+strings.Join(slices.Sorted(maps.Keys(s.labels)), ",")+"}"] = true
	}
	return shape, nil
}

// jsonShape lists the paths of all values; elements of a list count as one,
// and so do keys that name a resource or a label.
func jsonShape(body []byte) (map[string]bool, error) {
	var document any
	if err := json.Unmarshal(body, &document); err != nil {
		return nil, err
	}
	shape := map[string]bool{}
	addPaths("", document, shape)
	return shape, nil
}

func addPaths(path string, value any, shape map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			addPaths(path+"."+key, inner, shape)
		}
	case []any:
		for _, inner := range v {
			addPaths(path+"[]", inner, shape)
		}
	case nil:
	default:
		shape[path] = true
	}
}
