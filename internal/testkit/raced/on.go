//go:build race

package raced

// Enabled says that the race detector is in this program.
const Enabled = true
