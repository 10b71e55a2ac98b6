package logind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/godbus/dbus/v5"
	"k8s.io/klog/v2"
)

// senderTime bounds the questions about who has sent a signal.
const senderTime = 5 * time.Second

// policyDirs are where the machine's bus reads who may send what.
func policyDirs() []string {
	return []string{"/etc/dbus-1/system.d", "/usr/local/share/dbus-1/system.d", "/usr/share/dbus-1/system.d"}
}

// Guarded says whether the machine's bus has a rule that lets none but root send logind's
// signals (deploy/systemd/polylet.dbus.conf). Without one every user may, also straight
// to one connection. Who may on another bus (DBUS_SYSTEM_BUS_ADDRESS) is for whoever runs
// that to say.
func Guarded() bool { return os.Getenv(addressVariable) != "" || guardedIn(policyDirs()...) }

func guardedIn(dirs ...string) bool {
	rule := regexp.MustCompile(`<deny\s[^>]*send_interface="org\.freedesktop\.login1\.Manager"`)
	toSignals := regexp.MustCompile(`<deny\s[^>]*send_type="signal"`)
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.conf"))
		if err != nil {
			continue // the pattern is good
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // it may just have gone, and who cannot read it does not know
			}
			for _, found := range rule.FindAll(text, -1) {
				if toSignals.Match(found) {
					return true
				}
			}
		}
	}
	return false
}

// heeds says whether what a sender says in logind's name counts: any user of the machine
// could have all pods ended otherwise. An error is that the bus does not answer: it may
// have been logind, who is to be asked by another connection.
func (b *Bus) heeds(ctx context.Context, sender string) (bool, error) {
	if sender == b.refused {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, senderTime)
	defer cancel()
	var owner string
	if b.ask(ctx, &owner, "GetNameOwner", service) == nil && owner == sender {
		return true, nil
	}
	var uid uint32
	err := b.ask(ctx, &uid, "GetConnectionUnixUser", sender)
	if err == nil && uid == 0 || err != nil && b.guarded {
		return true, nil
	}
	if answer := (dbus.Error{}); err != nil && !errors.As(err, &answer) {
		return false, fmt.Errorf("ask D-Bus who says that the machine goes down, or that it does not: %w", err)
	}
	b.refused = sender
	klog.FromContext(ctx).Info("Somebody who is neither logind nor known to be root said that the machine goes down, or that it does not: it is not heeded; "+
		"deploy/systemd/polylet.dbus.conf has D-Bus refuse that", "user", uid, "err", err)
	return false, nil
}

// ask asks the bus itself.
func (b *Bus) ask(ctx context.Context, answer any, method, name string) error {
	return b.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus."+method, dbus.Flags(0), name).Store(answer)
}
