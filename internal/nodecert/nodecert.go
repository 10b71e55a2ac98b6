// Package nodecert keeps the node's certificates where and as the kubelet keeps them:
// in --cert-dir, certificate and key in one file with a date in its name, and a link
// to the one of now. A node can go over from a kubelet and back with them.
//
// It owns the names, forms and atomicity of these files. It must never ask for a
// certificate, and what it reads may be another user's doing: it follows links, but
// reads regular files of a reasonable size only.
package nodecert

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/polylet/polylet/internal/fsatomic"
)

// Prefixes of the files of the client's and of the serving certificate.
const (
	Client  = "kubelet-client"
	Serving = "kubelet-server"
)

// dated is the form of the date in a file's name, in local time as the kubelet's.
const dated = "2006-01-02-15-04-05"

// kept is how many dated files stay: the one of now, and some to go back to.
const kept = 5

// ErrDamaged is what Read returns of files that hold no certificate with its key.
var ErrDamaged = errors.New("it does not hold a certificate with its key")

// Pair is a certificate with its key.
type Pair struct {
	// Cert and Key are PEM: the chain with the leaf first, and the key.
	Cert, Key []byte
	// Leaf is the certificate.
	Leaf *x509.Certificate
}

// Parse reads a certificate and its key; both may be the same text. What is longer than
// ReadFile reads is refused.
func Parse(cert, key []byte) (*Pair, error) {
	if max(len(cert), len(key)) > longest/2 {
		return nil, fmt.Errorf("%w: it is longer than %d bytes", ErrDamaged, longest/2)
	}
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	leaf, err := x509.ParseCertificate(both.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return &Pair{Cert: blocks(cert, isCertificate), Key: blocks(key, isKey), Leaf: leaf}, nil
}

func isCertificate(kind string) bool { return kind == "CERTIFICATE" }
func isKey(kind string) bool         { return strings.HasSuffix(kind, "PRIVATE KEY") }

// blocks are the blocks of a PEM text that are wanted, and nothing of what stands
// between them.
func blocks(data []byte, wanted func(kind string) bool) []byte {
	var out bytes.Buffer
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return out.Bytes()
		}
		if wanted(block.Type) {
			out.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
		}
		data = rest
	}
}

// ReadCertificates reads the certificates of a file as ReadFile does, and nothing else of
// it: an error when there are none.
func ReadCertificates(path string) ([]byte, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	if data = blocks(data, isCertificate); len(data) == 0 {
		return nil, fmt.Errorf("there is no certificate in %s", path)
	}
	return data, nil
}

// PEM is the pair in one text, as it stands in a file.
func (p *Pair) PEM() []byte { return slices.Concat(p.Cert, p.Key) }

// Store is one certificate's files in a directory. Safe for concurrent use by readers
// and one writer, in several processes.
type Store struct {
	// Dir is --cert-dir, Prefix Client or Serving.
	Dir, Prefix string
}

// CurrentPath is the link to the file of the certificate of now.
func (s Store) CurrentPath() string { return filepath.Join(s.Dir, s.Prefix+"-current.pem") }

// Read reads the certificate of now: fs.ErrNotExist when there is none, ErrDamaged when
// its file holds another thing.
func (s Store) Read() (*Pair, error) {
	path := s.CurrentPath()
	pair, err := readPair(path)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", path, err)
	}
	return pair, nil
}

func readPair(path string) (*Pair, error) { return ReadPair(path, path) }

// ReadPair reads a certificate and its key from two files, which may be one, as ReadFile
// does: ErrDamaged says that they hold no such.
func ReadPair(certFile, keyFile string) (*Pair, error) {
	cert, err := ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	key, err := ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := Parse(cert, key)
	if err != nil && certFile != keyFile {
		return nil, fmt.Errorf("%s with key %s: %w", certFile, keyFile, err)
	}
	return pair, err
}

// Write makes a pair the one of now: a new file with a date in its name, then the link.
// Whoever reads finds the old or the new one.
func (s Store) Write(p *Pair, now time.Time) error {
	file := filepath.Join(s.Dir, s.Prefix+"-"+now.Local().Format(dated)+".pem")
	if err := fsatomic.WriteFile(file, p.PEM(), 0o600); err != nil {
		return err
	}
	if err := s.link(file); err != nil {
		return fmt.Errorf("write %s: %w", s.CurrentPath(), err)
	}
	s.forget()
	return nil
}

// link makes a file the one of now. What is no link in the link's place is set aside.
func (s Store) link(file string) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	current := s.CurrentPath()
	if info, err := os.Lstat(current); err == nil && info.Mode()&fs.ModeSymlink == 0 {
		if _, err := fsatomic.SetAside(current); err != nil {
			return err
		}
	}
	fresh := s.updatedPath()
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(file, fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, current); err != nil {
		return err
	}
	return fsatomic.SyncDir(s.Dir)
}

// updatedPath is the name under which a link is made before it takes its place, the
// kubelet's, which clears it away by itself.
func (s Store) updatedPath() string { return filepath.Join(s.Dir, s.Prefix+"-updated.pem") }

// Recover makes the one of now what a kubelet was about to: it removes the old link before
// it gives the new one its name, and may have been killed between. It says whether it did.
func (s Store) Recover() (bool, error) {
	if _, err := os.Stat(s.CurrentPath()); !errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	fresh := s.updatedPath()
	if info, err := os.Lstat(fresh); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return false, nil
	}
	if _, err := readPair(fresh); err != nil {
		return false, nil // it leads to nothing
	}
	if err := os.Rename(fresh, s.CurrentPath()); err != nil {
		return false, fmt.Errorf("give %s its place as %s: %w", fresh, s.CurrentPath(), err)
	}
	return true, fsatomic.SyncDir(s.Dir)
}

// forget removes the oldest files, and what writes that were cut short have left: with
// short lives there would be ever more of them, a key in each.
func (s Store) forget() {
	for _, name := range s.names(s.isCutShort) {
		_ = os.Remove(name) // it takes room, nothing else
	}
	files := s.files()
	inUse, err := filepath.EvalSymlinks(s.CurrentPath())
	if err != nil {
		return
	}
	for i := 0; i < len(files)-kept; i++ {
		// A clock that was set back gives the one of now an old name.
		if own, err := filepath.EvalSymlinks(files[i]); err == nil && own != inUse {
			_ = os.Remove(files[i]) // it takes room, nothing else
		}
	}
}

// files are the dated files, the oldest first.
func (s Store) files() []string {
	return s.names(func(name string) bool {
		date, dates := strings.CutPrefix(name, s.Prefix+"-")
		date, pem := strings.CutSuffix(date, ".pem")
		_, err := time.Parse(dated, date)
		return dates && pem && err == nil
	})
}

// isCutShort says whether a file was to become one of the store's.
func (s Store) isCutShort(name string) bool {
	file, _, temporary := strings.Cut(strings.TrimPrefix(name, "."), fsatomic.TemporaryMark)
	return temporary && strings.HasPrefix(name, "."+s.Prefix) && oursName(file)
}

// names are the files of the directory that are wanted, in order.
func (s Store) names(wanted func(name string) bool) []string {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if wanted(e.Name()) {
			out = append(out, filepath.Join(s.Dir, e.Name()))
		}
	}
	return out
}

// Mend puts the dated file that is good and ends last in the place of a damaged one,
// which is set aside under the name that is returned, unless the link leads elsewhere:
// what lies there is somebody else's. With none the link goes too: it would be found
// damaged for ever.
func (s Store) Mend(good func(*x509.Certificate) bool) (aside string, now *Pair, err error) {
	current := s.CurrentPath()
	damaged, ours := s.target()
	var last string
	for _, file := range s.files() {
		if own, err := filepath.EvalSymlinks(file); err != nil || ours && own == damaged {
			continue
		}
		if pair, err := readPair(file); err == nil && good(pair.Leaf) && (now == nil || pair.Leaf.NotAfter.After(now.Leaf.NotAfter)) {
			last, now = file, pair
		}
	}
	// The link leaves the damaged file first: one to nothing counts as no certificate, and
	// would stay so if this process were killed.
	info, err := os.Lstat(current)
	linked := now != nil && err == nil && info.Mode()&fs.ModeSymlink != 0
	if linked {
		if err := s.link(last); err != nil {
			return "", nil, err
		}
	}
	if ours {
		if aside, err = fsatomic.SetAside(damaged); err != nil {
			return "", now, fmt.Errorf("set %s aside: %w", damaged, err)
		}
	}
	switch {
	case linked:
		return aside, now, nil
	case now != nil:
		return aside, now, s.link(last)
	}
	if err := os.Remove(current); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return aside, nil, err
	}
	return aside, nil, nil
}

// target is the file that the link of now leads to, and whether it lies in the store's
// own directory.
func (s Store) target() (file string, ours bool) {
	file, err := filepath.EvalSymlinks(s.CurrentPath())
	if err != nil {
		return "", false
	}
	dir, err := filepath.EvalSymlinks(s.Dir)
	return file, err == nil && filepath.Dir(file) == dir
}
