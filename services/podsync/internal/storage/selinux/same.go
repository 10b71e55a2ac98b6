package selinux

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Same says whether two labels are one, however their levels are written: the kernel has the
// categories in order, and those in a row as a range.
func Same(a, b string) bool { return a == b || plain(a) == plain(b) }

// plain is a label as all that mean the same have it: USER:ROLE:TYPE:LOW-HIGH.
func plain(label string) string {
	parts := strings.SplitN(label, ":", 4)
	if len(parts) < 4 {
		return label
	}
	low, high, ranges := strings.Cut(parts[3], "-")
	if !ranges {
		high = low
	}
	return strings.Join(append(parts[:3], plainLevel(low)+"-"+plainLevel(high)), ":")
}

// plainLevel has each run of categories as a range, in order, and after them what is none.
func plainLevel(level string) string {
	sensitivity, categories, _ := strings.Cut(level, ":")
	var runs [][2]int
	var others []string
	for one := range strings.SplitSeq(categories, ",") {
		if run, is := categoriesIn(one); is {
			runs = append(runs, run)
		} else {
			others = append(others, one)
		}
	}
	slices.SortFunc(runs, func(a, b [2]int) int { return cmp.Compare(a[0], b[0]) })
	var text strings.Builder
	text.WriteString(sensitivity)
	for i := 0; i < len(runs); {
		run := runs[i]
		for i++; i < len(runs) && runs[i][0] <= run[1]+1; i++ {
			run[1] = max(run[1], runs[i][1])
		}
		fmt.Fprintf(&text, ",c%d.c%d", run[0], run[1])
	}
	slices.Sort(others)
	return text.String() + "," + strings.Join(slices.Compact(others), ",")
}

// categoriesIn reads cN or cN.cM.
func categoriesIn(text string) (run [2]int, is bool) {
	first, last, several := strings.Cut(text, ".")
	if !several {
		last = first
	}
	for i, name := range []string{first, last} {
		digits, named := strings.CutPrefix(name, "c")
		number, err := strconv.ParseUint(digits, 10, 31)
		if !named || err != nil {
			return run, false
		}
		run[i] = int(number) //nolint:gosec // It has 31 bits.
	}
	return run, run[0] <= run[1]
}
