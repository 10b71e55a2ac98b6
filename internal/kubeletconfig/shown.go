package kubeletconfig

import "net/url"

// hidden is shown for what may be secret in a URL.
const hidden = "xxxxx"

// ShownURL is a URL without what may be secret in it: its password, its query, and a name
// without a password, which may be a token. It is a URL still. Of what is shown it is the
// same again.
func ShownURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return hidden
	}
	if u.User != nil {
		name := u.User.Username()
		if _, has := u.User.Password(); has {
			u.User = url.UserPassword(name, hidden)
		} else if name != "" {
			u.User = url.User(hidden)
		}
	}
	if u.RawQuery != "" {
		u.RawQuery = hidden
	}
	return u.String()
}
