package cluster

import "testing"

func TestAClockForPeople(t *testing.T) {
	for c, want := range map[Clock]string{
		{}:             "",
		{0, 999.4}:     "up to 999 MHz",
		{1980, 0}:      "1,980 MHz",
		{210, 1234567}: "210 of 1,234,567 MHz",
	} {
		if got := c.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
