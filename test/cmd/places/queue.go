package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// wish is a line of the file of wishes: how many places a test takes.
type wish struct {
	name   string
	places int
}

// all is the number of places of a test that runs alone.
const all = -1

// wishes reads lines of a test's name and how many places it takes, a number or
// "alone"; what follows a # is for people.
func wishes(text string) ([]wish, error) {
	var out []wish
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("line %d is not a test's name and a number of places: %q", n+1, line)
		}
		places := all
		if fields[1] != "alone" {
			var err error
			if places, err = strconv.Atoi(fields[1]); err != nil || places < 1 {
				return nil, fmt.Errorf("line %d: %q is neither a number of places nor \"alone\"", n+1, fields[1])
			}
		}
		out = append(out, wish{fields[0], places})
	}
	return out, nil
}

// queue is what waits to be run, in that order.
type queue []wish

// lineUp has what is wished for first, in the order of the wishes, and then the others
// in their own, each in one place.
func lineUp(names []string, wished []wish) queue {
	var q queue
	for _, w := range wished {
		if slices.Contains(names, w.name) {
			q = append(q, w)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(wished, func(w wish) bool { return w.name == name }) {
			q = append(q, wish{name, 1})
		}
	}
	return q
}

// next takes out the first that fits into the places that are free of so many. What
// wants more than there are runs alone.
func (q *queue) next(free, of int) (w wish, ok bool) {
	for i, w := range *q {
		if w.places == all || w.places > of {
			w.places = of
		}
		if w.places <= free {
			*q = slices.Delete(*q, i, i+1)
			return w, true
		}
	}
	return wish{}, false
}
