package main

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// However a number is written, it is read as what it is or not at all.
func TestWholeNumbersAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,3}0{0,18})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		exact, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatal("not a number")
		}
		inside := exact.IsInt() && new(big.Int).Abs(exact.Num()).Cmp(big.NewInt(maxWhole)) <= 0
		got, err := literal(text).whole()
		if (err == nil) != inside {
			t.Fatalf("got %d, %v", got, err)
		}
		if inside && exact.Num().Cmp(big.NewInt(int64(got))) != 0 {
			t.Fatalf("got %d", got)
		}
	})
}
