package steps

// lookAt is code that looks at each of n once, and searchFor code that looks at all of
// them for each: what is to be told apart.
func lookAt(n int) (sum int) {
	for i := range n {
		sum += i
	}
	return sum
}

func searchFor(n int) (sum int) {
	for range n {
		for i := range n {
			sum += i
		}
	}
	return sum
}
