package rpc

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/uds"
)

// Access says who may call an RPC, beside root and the user that the server
// runs as. The zero value lets only those two.
type Access struct {
	// Services may, by name.
	Services []string
	// People may: whoever can open the socket (members of its group) and is none
	// of the services.
	People bool
}

// String names who may call, as lists of RPCs show it.
func (a Access) String() string {
	names := append([]string{"root"}, a.Services...)
	if a.People {
		names = append(names, "people")
	}
	return strings.Join(names, ", ")
}

// Users are the numbers of the services' users, by service. A service that is
// not in it has no user of its own: it runs as root, or not at all.
type Users map[string]uint32

// LookupUsers turns names or numbers of the services' users into numbers. Those
// that do not exist (yet) are left out and returned in missing, to be logged;
// so are services without a name and root, which is nobody's own.
func LookupUsers(names map[string]string) (users Users, missing []string) {
	users = Users{}
	for service, name := range names {
		if name == "" {
			continue
		}
		uid, err := LookupUID(name)
		if err != nil {
			missing = append(missing, name)
			continue
		}
		if uid != 0 {
			users[service] = uid
		}
	}
	slices.Sort(missing)
	return users, missing
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

// nameOf says which service has a user; "" when none has.
func (u Users) nameOf(uid uint32) string {
	for service, number := range u {
		if number == uid {
			return service
		}
	}
	return ""
}

// allows says whether a caller may. No pod may, whatever its number: images and
// manifests choose that.
func (a Access) allows(users Users, caller uds.Peer) bool {
	if caller.Pod != "" {
		return false
	}
	if caller.UID == 0 || caller.UID == uint32(os.Geteuid()) {
		return true
	}
	service := users.nameOf(caller.UID)
	if service == "" {
		return a.People
	}
	return slices.Contains(a.Services, service)
}

// refusal says why a caller may not, and what to do.
func (a Access) refusal(users Users, method string, caller uds.Peer) error {
	who := "uid " + strconv.FormatUint(uint64(caller.UID), 10)
	if service := users.nameOf(caller.UID); service != "" {
		who += ", the user of " + service
	}
	if caller.Pod != "" {
		return fmt.Errorf("%w: %s: the caller (%s) runs in a pod (cgroup %s), and no pod may call this socket",
			rpcerr.ErrForbidden, method, who, caller.Pod)
	}
	return fmt.Errorf("%w: %s may be called by %s; the caller is %s: use one of those; the services' users are set with "+
		"--gateway-user, --probes-user, --stats-user and --nodestatus-user", rpcerr.ErrForbidden, method, a, who)
}

// CheckAccess fails when a method that is registered on the server has no
// entry, or an entry has no method: who may call it was forgotten.
func CheckAccess(server *grpc.Server, access map[string]Access) error {
	var wrong []string
	registered := Methods(server)
	for _, method := range registered {
		if _, ok := access[method]; !ok {
			wrong = append(wrong, method+" has no entry")
		}
	}
	for method := range access {
		if !slices.Contains(registered, method) {
			wrong = append(wrong, method+" is not served")
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("who may call which RPC is not complete: %s", strings.Join(wrong, "; "))
}

// Methods are the full names of what is registered on a server, in order.
func Methods(server *grpc.Server) []string {
	var out []string
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			out = append(out, "/"+service+"/"+method.Name)
		}
	}
	slices.Sort(out)
	return out
}
