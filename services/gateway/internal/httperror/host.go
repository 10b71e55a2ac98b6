package httperror

import (
	"net"
	"net/http"
	"strings"
)

// OwnHost says whether a Host header is safe from DNS rebinding: an address
// cannot be rebound, and localhost and the node's name are nobody else's.
func OwnHost(host, nodeName string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	return net.ParseIP(host) != nil || host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		nodeName != "" && host == strings.ToLower(nodeName)
}

// OnlyOwnHost serves next under names that no other's DNS can point here: a
// port that asks nobody who they are would else be read by any page that is
// open in a browser on this machine.
func OnlyOwnHost(nodeName string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !OwnHost(r.Host, nodeName) {
			Text(w, http.StatusMisdirectedRequest, "This port answers under an IP address, localhost or the node's name only.")
			return
		}
		next.ServeHTTP(w, r)
	})
}
