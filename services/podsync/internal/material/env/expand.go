// Package env computes a container's environment: from its own variables,
// config maps, secrets, files, the pod's fields and the services around it.
//
// It is pure: what must be read is given to it as functions, and it must never
// do I/O itself.
package env

import "strings"

// Expand replaces $(NAME) by what lookup knows, leaves the others as they are,
// and makes $$ a plain $.
func Expand(text string, lookup func(name string) (string, bool)) string {
	if !strings.Contains(text, "$") {
		return text
	}
	var out strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(text[:i])
		text = text[i:]
		switch text[1] {
		case '$':
			out.WriteByte('$')
			text = text[2:]
		case '(':
			end := strings.IndexByte(text, ')')
			if end < 0 {
				out.WriteString("$(")
				text = text[2:]
				continue
			}
			if value, ok := lookup(text[2:end]); ok {
				out.WriteString(value)
			} else {
				out.WriteString(text[:end+1])
			}
			text = text[end+1:]
		default:
			out.WriteString(text[:2])
			text = text[2:]
		}
	}
}

// ExpandAll expands each text of a list; nil stays nil.
func ExpandAll(texts []string, vars map[string]string) []string {
	if texts == nil {
		return nil
	}
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = Expand(text, func(name string) (string, bool) { v, ok := vars[name]; return v, ok })
	}
	return out
}
