// Command nnp says which user it runs as. The suite's image nonewprivs holds it
// with the set-user-id bit, to show whether a container can gain privileges. It
// must never do anything else.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Printf("Effective uid: %d\n", os.Geteuid())
}
