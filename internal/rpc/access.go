package rpc

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/uds"
)

// Access says who, beside root and the user that the server runs as, may call
// an RPC that changes something. The zero value lets only those two.
type Access struct {
	// UIDs of callers.
	UIDs []uint32
}

// AllowUsers returns the Access of users given by name or number. Names that
// do not exist (yet) are left out and returned in missing, to be logged.
func AllowUsers(users ...string) (access Access, missing []string) {
	for _, name := range users {
		if name == "" {
			continue
		}
		uid, err := LookupUID(name)
		if err != nil {
			missing = append(missing, name)
			continue
		}
		if !slices.Contains(access.UIDs, uid) {
			access.UIDs = append(access.UIDs, uid)
		}
	}
	return access, missing
}

// LookupUID turns a user's name or number into its number.
func LookupUID(name string) (uint32, error) {
	if uid, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(uid), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("user %q: %w", name, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(uid), err
}

func (a Access) check(method string, caller uds.Peer) error {
	if caller.UID == 0 || caller.UID == uint32(os.Geteuid()) || slices.Contains(a.UIDs, caller.UID) {
		return nil
	}
	return fmt.Errorf("%w: %s changes something and may be called by %s; the caller has uid %d: "+
		"use that user, or allow this one (--gateway-user, --probes-user, --stats-user)",
		rpcerr.ErrForbidden, method, a, caller.UID)
}

// String names who is allowed.
func (a Access) String() string {
	names := []string{"root"}
	for _, uid := range a.UIDs {
		if uid != 0 {
			names = append(names, "uid "+strconv.FormatUint(uint64(uid), 10))
		}
	}
	return strings.Join(names, ", ")
}
