package env

import (
	"fmt"
	"strings"
)

// ParseFile reads variables from a file of lines NAME='value'. A quoted value
// may span lines; a value without quotes ends with its line. Blank lines and
// lines that begin with # are left out; of a name that comes twice the last counts.
// Source: KEP-3721.
func ParseFile(text string) (map[string]string, error) {
	vars := map[string]string{}
	line := 0
	for text != "" {
		line++
		var current string
		current, text, _ = strings.Cut(text, "\n")
		trimmed := strings.TrimSpace(current)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimLeft(current, " \t"), "=")
		name = strings.TrimSpace(name)
		if !ok || !validName(name) {
			return nil, fmt.Errorf("line %d is not NAME='value'", line)
		}
		value = strings.TrimSpace(value)
		quoted, isQuoted := strings.CutPrefix(value, "'")
		if !isQuoted {
			vars[name] = value
			continue
		}
		start := line
		for !strings.Contains(quoted, "'") {
			if text == "" {
				return nil, fmt.Errorf("line %d: the value of %s has no closing quote", start, name)
			}
			line++
			var more string
			more, text, _ = strings.Cut(text, "\n")
			quoted += "\n" + more
		}
		content, rest, _ := strings.Cut(quoted, "'")
		if rest = strings.TrimSpace(rest); rest != "" && !strings.HasPrefix(rest, "#") {
			return nil, fmt.Errorf("line %d: text after the closing quote of %s", line, name)
		}
		vars[name] = content
	}
	return vars, nil
}

// validName accepts what Kubernetes does: printable ASCII without '='.
func validName(name string) bool {
	if name == "" {
		return false
	}
	for _, c := range []byte(name) {
		if c < 0x20 || c > 0x7e || c == '=' {
			return false
		}
	}
	return true
}
