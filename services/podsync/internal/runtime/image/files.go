package image

import (
	"os"
	"path/filepath"
)

// CredentialFiles are the places of the node's registry credentials, the new
// form before the old one.
// Source: https://kubernetes.io/docs/concepts/containers/images/#using-a-private-registry
func CredentialFiles(rootDir string) []string {
	home, _ := os.UserHomeDir() // none is no place to look
	var files []string
	add := func(name string, dirs ...string) {
		for _, dir := range dirs {
			if dir != "" {
				files = append(files, filepath.Join(dir, name))
			}
		}
	}
	docker := ""
	if home != "" {
		docker = filepath.Join(home, ".docker")
	}
	add("config.json", rootDir, ".", docker, "/.docker")
	add(".dockercfg", rootDir, ".", home, "/")
	return files
}
