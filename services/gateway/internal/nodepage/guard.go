package nodepage

import (
	"net/http"

	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// contentPolicy lets the page load nothing but what this server has.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Guard lets only GET and HEAD through, only under names that no other's DNS
// can point here, and not from pages of other sites; and sets the headers that
// keep a browser from doing more than the page needs.
func Guard(nodeName string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			httperror.Text(w, http.StatusMethodNotAllowed, "405: Method Not Allowed")
		case !httperror.OwnHost(r.Host, nodeName):
			httperror.Text(w, http.StatusMisdirectedRequest, "This page answers under an IP address, localhost or the node's name only.")
		case r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate":
			httperror.Text(w, http.StatusForbidden, "Another site may not read this.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}
