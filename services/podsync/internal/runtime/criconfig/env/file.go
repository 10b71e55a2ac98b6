package env

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// mostFiles is how much the files may have together that one container's variables are
// read from, in bytes.
const mostFiles = 8 << 20

// files are those that a container's variables are read from, each of which is read once: a
// variable takes a few words of a spec, there may be ten thousands, and of a file a megabyte.
type files struct {
	read func(volume, path string) (text string, found bool, err error)
	// keys are those that are wanted of each.
	keys  map[file]map[string]bool
	known map[file]*parsed
	left  int
}

// file names one.
type file struct{ volume, path string }

// newFiles returns those of these variables; nothing is read yet.
func newFiles(read func(volume, path string) (text string, found bool, err error), vars []v1.EnvVar) *files {
	f := &files{read: read, keys: map[file]map[string]bool{}, known: map[file]*parsed{}, left: mostFiles}
	for i := range vars {
		if vars[i].ValueFrom == nil || vars[i].ValueFrom.FileKeyRef == nil {
			continue
		}
		ref := vars[i].ValueFrom.FileKeyRef
		this := file{ref.VolumeName, ref.Path}
		if f.keys[this] == nil {
			f.keys[this] = map[string]bool{}
		}
		f.keys[this][ref.Key] = true
	}
	return f
}

// get returns a file. The error is of reading it.
func (f *files) get(volume, path string) (*parsed, error) {
	this := file{volume, path}
	if p := f.known[this]; p != nil {
		return p, nil
	}
	text, found, err := f.read(volume, path)
	if err != nil {
		return nil, err
	}
	if f.left -= len(text); f.left < 0 {
		return nil, fmt.Errorf("the files that the container's variables are read from have more than %d bytes together; name fewer, or put into one what is wanted of them", mostFiles)
	}
	p := parse(text, f.keys[this])
	p.found = found
	f.known[this] = p
	return p, nil
}

// parsed is what is wanted of a file.
type parsed struct {
	found  bool              // the file is there
	values map[string]string // of the keys that were found
	err    error             // why no more were looked for
}

// value is that of a key; not ok: the file has none of that name.
func (p *parsed) value(key string) (value string, ok bool, err error) {
	if value, ok = p.values[key]; ok {
		return value, true, nil
	}
	return "", false, p.err
}

// ParseFile reads the variable key from a file of lines NAME='value', in which a value
// may span lines. Of a name that comes twice the first counts, and what follows it is
// not looked at: somebody may still be writing there. As in a shell, NAME= 'value' is
// empty. Blank lines and lines that begin with # are left out.
// Source: KEP-3721.
func ParseFile(text, key string) (value string, found bool, err error) {
	return parse(text, map[string]bool{key: true}).value(key)
}

// parse is ParseFile for several keys.
func parse(text string, keys map[string]bool) *parsed {
	p := &parsed{values: map[string]string{}}
	for line := 1; text != "" && len(p.values) < len(keys); line++ {
		trimmed := strings.TrimLeft(nextLine(&text), " \t")
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		name, value, ok := strings.Cut(trimmed, "=")
		if !ok || name == "" || strings.TrimRight(name, " \t") != name {
			p.err = fmt.Errorf("line %d is not NAME='value'", line)
			return p
		}
		content, more := "", 0
		if !strings.HasPrefix(value, " ") && !strings.HasPrefix(value, "\t") {
			quoted, ok := strings.CutPrefix(value, "'")
			if !ok {
				p.err = fmt.Errorf("line %d: the value of %s is not in single quotes", line, name)
				return p
			}
			if content, more, p.err = unquote(quoted, &text); p.err != nil {
				p.err = fmt.Errorf("line %d: the value of %s %w", line, name, p.err)
				return p
			}
		}
		if _, before := p.values[name]; keys[name] && !before {
			p.values[name] = content
		}
		line += more
	}
	return p
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
