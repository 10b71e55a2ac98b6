package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/supervise"
	"github.com/polylet/polylet/internal/uds"
)

// Numbers that are taken where the services have no users: a part of what
// systemd's table of ids leaves unused (60578 to 61183). Images choose theirs
// from elsewhere: 1000, 65532, 65534 are users of many.
const (
	firstFreeID = 60800
	lastFreeID  = 60999
)

// takeUsers completes who the services run as and which group the sockets
// have: where neither a flag nor a user of its own says it, a free number, a
// different one for each. Without root everything is this process's own user.
func takeUsers(f *kubeletconfig.Flags, log klog.Logger) error {
	if os.Geteuid() != 0 {
		return nil
	}
	var taken []int
	f.SocketGroup = socketGroup(f.SocketGroup)
	if f.SocketGroup == "" {
		id, err := freeID(nil, idIsUsed)
		if err != nil {
			return err
		}
		f.SocketGroup, taken = strconv.Itoa(id), append(taken, id)
	}
	users := f.Users()
	var made []string
	var numbers []int
	for _, name := range service.Separate() {
		if *users[name] = f.ServiceUser(name); *users[name] != "" {
			continue
		}
		id, err := freeID(taken, idIsUsed)
		if err != nil {
			return err
		}
		*users[name], taken = strconv.Itoa(id), append(taken, id)
		made, numbers = append(made, "polylet-"+name), append(numbers, id)
	}
	if len(made) > 0 {
		log.Info("The services have no users of their own on this machine and take free numbers; to make users: "+
			"groupadd --system polylet, and for each useradd --system --no-create-home --shell /usr/sbin/nologin --groups polylet NAME",
			"users", made, "numbers", numbers, "group", f.SocketGroup)
	}
	return nil
}

// freeID returns the first number that is neither taken nor used.
func freeID(taken []int, used func(int) (bool, error)) (int, error) {
	for id := firstFreeID; id <= lastFreeID; id++ {
		if slices.Contains(taken, id) {
			continue
		}
		inUse, err := used(id)
		if err != nil {
			return 0, fmt.Errorf("find a number for a service's user: %w", err)
		}
		if !inUse {
			return id, nil
		}
	}
	return 0, fmt.Errorf("find a number for a service's user: %d to %d are all used: make users polylet-gateway, polylet-probes, polylet-stats, "+
		"polylet-nodestatus and group polylet (useradd --system), or name others (--gateway-user …)", firstFreeID, lastFreeID)
}

// idIsUsed asks the databases of users and groups.
func idIsUsed(id int) (bool, error) {
	text := strconv.Itoa(id)
	var noUser user.UnknownUserIdError
	if _, err := user.LookupId(text); err == nil || !errors.As(err, &noUser) {
		return true, err
	}
	var noGroup user.UnknownGroupIdError
	if _, err := user.LookupGroupId(text); err == nil || !errors.As(err, &noGroup) {
		return true, err
	}
	return false, nil
}

// socketGroup is the group of the sockets: the one that was given, polylet if
// it exists, else "".
func socketGroup(given string) string {
	if given != "" {
		return given
	}
	if _, err := user.LookupGroup(uds.DefaultGroup); err == nil {
		return uds.DefaultGroup
	}
	return ""
}

// identityOf is who a service runs as: its user with the group of the sockets,
// and of root's rights those that its work needs. stats reads what pods' users
// own and the tables of their processes; nodestatus reads logs and the node's
// own keys, and writes nothing.
func identityOf(loaded *kubeletconfig.Loaded, name string, gid int) (supervise.Identity, error) {
	identity, err := supervise.LookupIdentity(loaded.ServiceUser(name), gid)
	if err != nil {
		return identity, fmt.Errorf("--%s-user: %w", name, err)
	}
	switch name {
	case service.Stats:
		identity.Capabilities = []int{unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_PTRACE}
	case service.Nodestatus:
		identity.Capabilities = []int{unix.CAP_DAC_READ_SEARCH}
	}
	if name == service.Nodestatus || name == service.Gateway {
		// How to reach the apiserver, for client-go.
		identity.Environment = []string{
			"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
			"DISABLE_HTTP2", "HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS",
		}
	}
	return identity, nil
}

// identitiesOf are who the services that are wanted run as, after a look that
// none can take another's place or read another's keys.
func identitiesOf(loaded *kubeletconfig.Loaded, gid int, wanted func(name string) bool) (map[string]supervise.Identity, error) {
	identities := map[string]supervise.Identity{}
	for _, name := range service.ServersFirst() {
		if !wanted(name) {
			continue
		}
		var err error
		if identities[name], err = identityOf(loaded, name, gid); err != nil {
			return nil, err
		}
	}
	return identities, errors.Join(differentUsers(identities), ownGroup(identities, gid))
}

// differentUsers fails when two services have the same number under two names.
func differentUsers(identities map[string]supervise.Identity) error {
	for i, name := range service.Separate() {
		for _, other := range service.Separate()[:i] {
			a, b := identities[name], identities[other]
			if a.Drop && b.Drop && a.UID == b.UID {
				return fmt.Errorf("--%s-user and --%s-user have the same number %d: give each service a user of its own", other, name, a.UID)
			}
		}
	}
	return nil
}

// ownGroup fails when the gateway's group is another service's, or that of the
// sockets, gid: its copies are its group's to read, the key of the node's
// certificate for one. Where useradd makes no group for each user, all share one.
func ownGroup(identities map[string]supervise.Identity, gid int) error {
	gateway := identities[service.Gateway]
	if !gateway.Drop {
		return nil
	}
	const mend = "give it a group of its own (groupadd --system polylet-gateway; usermod --gid polylet-gateway polylet-gateway)"
	if gateway.GID == gid {
		return fmt.Errorf("--gateway-user: its first group is that of the sockets (%d), whose members could read its keys: %s", gid, mend)
	}
	for _, name := range service.Separate() {
		if other := identities[name]; name != service.Gateway && other.Drop && other.GID == gateway.GID {
			return fmt.Errorf("--gateway-user and --%s-user have the same first group %d, which may read the gateway's keys: %s", name, gateway.GID, mend)
		}
	}
	return nil
}
