// Package env computes a container's environment: from its own variables,
// config maps, secrets, files, the pod's fields and the services around it.
//
// It is pure: what must be read is given to it as functions, and it must never
// do I/O itself.
package env

import (
	"fmt"
	"strings"
)

// Most bounds what references may make of texts, in bytes, of a command or an
// environment as a whole: variables that name others twice double with each, and
// forty of them are more than a machine has. Linux starts no program with more.
const Most = 8 << 20

// ErrTooLarge says that texts are larger than Most.
var ErrTooLarge = fmt.Errorf("with all $(VARIABLES) expanded it is larger than %d bytes, and no program can be started with that much", Most)

// Expand replaces $(NAME) by what lookup knows, leaves the others as they are,
// and makes $$ a plain $. The error is ErrTooLarge.
func Expand(text string, lookup func(name string) (string, bool)) (string, error) {
	return expand(text, Most, lookup)
}

// ExpandWithin is Expand to at most so many bytes: who has a small use for it makes no more.
func ExpandWithin(text string, most int, lookup func(name string) (string, bool)) (string, error) {
	return expand(text, most, lookup)
}

// expand makes at most so many bytes.
func expand(text string, most int, lookup func(name string) (string, bool)) (string, error) {
	if reads := strings.Contains(text, "$"); len(text) > Most || len(text) > most && !reads {
		return "", ErrTooLarge
	} else if !reads {
		return text, nil
	}
	var out strings.Builder
	unclosed := false // there is no ) in what is left: who looks for it at each of many $( looks for long
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			if out.Len()+len(text) > most {
				return "", ErrTooLarge
			}
			out.WriteString(text)
			return out.String(), nil
		}
		out.WriteString(text[:i])
		text = text[i:]
		switch text[1] {
		case '$':
			out.WriteByte('$')
			text = text[2:]
		case '(':
			end := -1
			if !unclosed {
				end = strings.IndexByte(text, ')')
			}
			if end < 0 {
				unclosed = true
				out.WriteString("$(")
				text = text[2:]
				continue
			}
			if value, ok := lookup(text[2:end]); ok {
				if out.Len()+len(value) > most {
					return "", ErrTooLarge
				}
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

// ExpandAll expands each text of a list; nil stays nil. The error is ErrTooLarge:
// all of them together are.
func ExpandAll(texts []string, vars map[string]string) ([]string, error) {
	if texts == nil {
		return nil, nil
	}
	out, left := make([]string, len(texts)), Most
	for i, text := range texts {
		one, err := expand(text, left, func(name string) (string, bool) { v, ok := vars[name]; return v, ok })
		if err != nil {
			return nil, err
		}
		out[i] = one
		left -= len(one)
	}
	return out, nil
}
