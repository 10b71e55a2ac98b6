// Package reference reads the names of images as people write them in pods:
// [registry/]path[:tag][@digest], with Docker Hub as the registry that may be
// left out. It must never ask a registry or a runtime.
//
// github.com/distribution/reference reads the same language with 15 regular
// expressions that each of the five processes would compile at its start and
// hold for ever (half a mebibyte); the tests hold this package to it.
// Source: https://github.com/distribution/reference, the grammar in its documentation.
package reference

import (
	"errors"
	"fmt"
	"strings"
)

const (
	hub, legacyHub = "docker.io", "index.docker.io"
	official       = "library/"
	longestPath    = 255
	longestTag     = 128
)

// Errors have the words that the kubelet shows in a pod's status.
var (
	errFormat       = errors.New("invalid reference format")
	errUppercase    = errors.New("repository name must be lowercase")
	errTooLong      = fmt.Errorf("repository name must not be more than %d characters", longestPath)
	errDigestFormat = errors.New("invalid checksum digest format")
	errDigestLength = errors.New("invalid checksum digest length")
	errAlgorithm    = errors.New("unsupported digest algorithm")
)

// Name is an image's full name.
type Name struct {
	// Domain is the registry's host and port: docker.io when none was named.
	Domain string
	// Path is the repository in the registry: library/busybox.
	Path string
	// Tag and Digest (sha256:…) are empty when the name has none.
	Tag, Digest string
}

// Parse reads a name and completes its registry.
func Parse(s string) (Name, error) {
	if len(s) == 64 && onlyOf(s, isLowerHex) {
		return Name{}, fmt.Errorf("invalid repository name (%s), cannot specify 64-byte hexadecimal strings", s)
	}
	domain, rest := complete(s)
	if remote, _, _ := strings.Cut(rest, ":"); strings.ToLower(remote) != remote {
		return Name{}, fmt.Errorf("invalid reference format: repository name (%s) must be lowercase", remote)
	}
	n, ok := split(domain, rest)
	switch {
	case !ok:
		if _, ok := split(strings.ToLower(domain), strings.ToLower(rest)); ok {
			return Name{}, errUppercase
		}
		return Name{}, errFormat
	case len(n.Path) > longestPath:
		return Name{}, errTooLong
	case n.Digest != "":
		if err := checkDigest(n.Digest); err != nil {
			return Name{}, err
		}
	}
	return n, nil
}

// Repository is the name without tag and digest.
func (n Name) Repository() string {
	if n.Domain == "" {
		return n.Path
	}
	return n.Domain + "/" + n.Path
}

// Pulled is the name as a runtime pulls it: by digest if there is one, else by
// tag, which is "latest" when the name has none.
func (n Name) Pulled() string {
	switch {
	case n.Digest != "":
		return n.Repository() + "@" + n.Digest
	case n.Tag != "":
		return n.Repository() + ":" + n.Tag
	default:
		return n.Repository() + ":latest"
	}
}

// complete tells the registry from the rest. What stands before the first slash
// is a registry if no repository's name could look like it.
func complete(s string) (domain, rest string) {
	first, after, ok := strings.Cut(s, "/")
	switch {
	case !ok:
		return hub, official + s
	case first == legacyHub:
		domain, rest = hub, after
	case first == "localhost" || strings.ContainsAny(first, ".:") || strings.ToLower(first) != first:
		domain, rest = first, after
	default:
		domain, rest = hub, s
	}
	if domain == hub && !strings.Contains(rest, "/") {
		rest = official + rest
	}
	return domain, rest
}

// split takes the parts of a completed name apart, and says whether each is
// well-formed. A domain that is none but could be a directory is taken for that.
func split(domain, rest string) (n Name, ok bool) {
	rest, digest, hasDigest := strings.Cut(rest, "@")
	path, tag, hasTag := strings.Cut(rest, ":")
	n = Name{Domain: domain, Path: path, Tag: tag, Digest: digest}
	if !isDomain(domain) {
		n.Domain, n.Path = "", domain+"/"+path
	}
	return n, isPath(n.Path) && (!hasTag || isTag(tag)) && (!hasDigest || looksLikeDigest(digest))
}

func isDomain(s string) bool {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, port = s[:i], s[i+1:]
		if port == "" || !onlyOf(port, isDigit) {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && inner != "" && onlyOf(inner, func(c byte) bool { return isHex(c) || c == ':' })
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' || !onlyOf(label, func(c byte) bool { return isAlphanumeric(c) || c == '-' }) {
			return false
		}
	}
	return true
}

// isPath: directories of lower-case words, joined by a dot, one or two
// underscores or any number of dashes.
func isPath(s string) bool {
	for directory := range strings.SplitSeq(s, "/") {
		if !isDirectory(directory) {
			return false
		}
	}
	return true
}

func isDirectory(s string) bool {
	if s == "" || !isWord(s[0]) || !isWord(s[len(s)-1]) {
		return false
	}
	for i := 0; i < len(s); {
		if isWord(s[i]) {
			i++
			continue
		}
		begin := i
		for i < len(s) && !isWord(s[i]) {
			i++
		}
		switch joint := s[begin:i]; {
		case joint == ".", joint == "_", joint == "__", strings.Trim(joint, "-") == "":
		default:
			return false
		}
	}
	return true
}

func isTag(s string) bool {
	return s != "" && len(s) <= longestTag && s[0] != '.' && s[0] != '-' &&
		onlyOf(s, func(c byte) bool { return isAlphanumeric(c) || c == '_' || c == '.' || c == '-' })
}

// looksLikeDigest is the part of a reference's grammar; see checkDigest.
func looksLikeDigest(s string) bool {
	algorithm, sum, ok := strings.Cut(s, ":")
	if !ok || len(sum) < 32 || !onlyOf(sum, isHex) {
		return false
	}
	for part := range strings.SplitSeq(strings.NewReplacer("+", "-", ".", "-", "_", "-").Replace(algorithm), "-") {
		if part == "" || isDigit(part[0]) || !onlyOf(part, isAlphanumeric) {
			return false
		}
	}
	return true
}

// digits is how many hexadecimal digits the sum of an algorithm has.
func digits(algorithm string) int {
	switch algorithm {
	case "sha256":
		return 64
	case "sha384":
		return 96
	case "sha512":
		return 128
	}
	return 0
}

func checkDigest(s string) error {
	algorithm, sum, _ := strings.Cut(s, ":")
	switch want := digits(algorithm); {
	case strings.ToLower(algorithm) != algorithm:
		return errDigestFormat
	case want == 0:
		return errAlgorithm
	case len(sum) != want:
		return errDigestLength
	case !onlyOf(sum, isLowerHex):
		return errDigestFormat
	}
	return nil
}

func onlyOf(s string, is func(byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool        { return '0' <= c && c <= '9' }
func isWord(c byte) bool         { return isDigit(c) || 'a' <= c && c <= 'z' }
func isAlphanumeric(c byte) bool { return isWord(c) || 'A' <= c && c <= 'Z' }
func isLowerHex(c byte) bool     { return isDigit(c) || 'a' <= c && c <= 'f' }
func isHex(c byte) bool          { return isLowerHex(c) || 'A' <= c && c <= 'F' }
