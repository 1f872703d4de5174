package placement

// tournament finds the least of values that change one at a time: a tree of matches, the lower index winning a draw.
type tournament struct {
	value []float64
	won   []int32 // node n is played by nodes 2n and 2n+1; leaves follow at len(value)
}

func newTournament(value []float64) *tournament {
	t := &tournament{value, make([]int32, 2*len(value))}
	for i := range value {
		t.won[len(value)+i] = int32(i)
	}
	for n := len(value) - 1; n > 0; n-- {
		t.play(n)
	}
	return t
}

func (t *tournament) play(n int) {
	a, b := t.won[2*n], t.won[2*n+1]
	if va, vb := t.value[a], t.value[b]; vb < va || vb == va && b < a {
		a = b
	}
	t.won[n] = a
}

// set changes one value.
func (t *tournament) set(i int, v float64) {
	if t.value[i] == v {
		return
	}
	t.value[i] = v
	for n := (len(t.value) + i) / 2; n > 0; n /= 2 {
		t.play(n)
	}
}

// least is the index of the least value.
func (t *tournament) least() int {
	return int(t.won[1])
}
