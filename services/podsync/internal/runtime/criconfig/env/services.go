package env

import (
	"net"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// FromServices are the variables by which a container finds services that have
// an address: NAME_SERVICE_HOST and its companions, and the older link style.
func FromServices(services []*v1.Service) map[string]string {
	vars := map[string]string{}
	for _, s := range services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == v1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			continue
		}
		addService(vars, s)
	}
	return vars
}

func addService(vars map[string]string, s *v1.Service) {
	name := variable(s.Name)
	vars[name+"_SERVICE_HOST"] = s.Spec.ClusterIP
	vars[name+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		port := strconv.Itoa(int(p.Port))
		protocol := string(p.Protocol)
		if protocol == "" {
			protocol = string(v1.ProtocolTCP)
		}
		if p.Name != "" {
			vars[name+"_SERVICE_PORT_"+variable(p.Name)] = port
		}
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(s.Spec.ClusterIP, port)
		if i == 0 {
			vars[name+"_PORT"] = url
		}
		prefix := name + "_PORT_" + port + "_" + strings.ToUpper(protocol)
		vars[prefix] = url
		vars[prefix+"_PROTO"] = strings.ToLower(protocol)
		vars[prefix+"_PORT"] = port
		vars[prefix+"_ADDR"] = s.Spec.ClusterIP
	}
}

func variable(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
