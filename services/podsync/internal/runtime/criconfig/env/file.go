package env

import (
	"errors"
	"fmt"
	"strings"
)

// ParseFile reads the variable key from a file of lines NAME='value', in which a value
// may span lines. Of a name that comes twice the first counts, and what follows it is
// not looked at: somebody may still be writing there. As in a shell, NAME= 'value' is
// empty. Blank lines and lines that begin with # are left out.
// Source: KEP-3721.
func ParseFile(text, key string) (value string, found bool, err error) {
	for line := 1; text != ""; line++ {
		current := nextLine(&text)
		trimmed := strings.TrimLeft(current, " \t")
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		name, value, ok := strings.Cut(trimmed, "=")
		if !ok || name == "" || strings.TrimRight(name, " \t") != name {
			return "", false, fmt.Errorf("line %d is not NAME='value'", line)
		}
		if strings.HasPrefix(value, " ") || strings.HasPrefix(value, "\t") {
			if name == key {
				return "", true, nil
			}
			continue
		}
		quoted, ok := strings.CutPrefix(value, "'")
		if !ok {
			return "", false, fmt.Errorf("line %d: the value of %s is not in single quotes", line, name)
		}
		content, more, err := unquote(quoted, &text)
		if err != nil {
			return "", false, fmt.Errorf("line %d: the value of %s %w", line, name, err)
		}
		if name == key {
			return content, true, nil
		}
		line += more
	}
	return "", false, nil
}

// unquote reads up to the closing quote, from as many more lines of text as it takes.
func unquote(quoted string, text *string) (content string, more int, err error) {
	lines := []string{quoted}
	for ; !strings.Contains(lines[more], "'"); more++ {
		if *text == "" {
			return "", 0, errors.New("has no closing quote")
		}
		lines = append(lines, nextLine(text))
	}
	content, rest, _ := strings.Cut(strings.Join(lines, "\n"), "'")
	if rest = strings.TrimLeft(rest, " \t"); rest != "" && !strings.HasPrefix(rest, "#") {
		return "", 0, errors.New("is followed by more than a comment")
	}
	return content, more, nil
}

// nextLine takes a line off the text.
func nextLine(text *string) (line string) {
	line, *text, _ = strings.Cut(*text, "\n")
	return strings.TrimSuffix(line, "\r")
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
