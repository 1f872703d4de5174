package request

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFromComment(t *testing.T) {
	for name, c := range map[string]struct {
		comment string
		want    *Request
		err     string
	}{
		"all keys": {
			"evenstep workload=resnet50-amp global_batch=1024 samples=90e6 workers=2-8 policy=auto",
			&Request{"resnet50-amp", 1024, 90e6, 2, 8, "auto"}, "",
		},
		"the needed keys, in any order, with any space between": {
			"evenstep\t samples=1.5  global_batch=8\nworkload=a/b@c+d:e_f.g ",
			&Request{Workload: "a/b@c+d:e_f.g", GlobalBatch: 8, Samples: 1.5}, "",
		},
		"one count of workers":            {"evenstep workload=w global_batch=8 samples=1 workers=4", &Request{"w", 8, 1, 4, 4, ""}, ""},
		"no comment":                      {"", nil, ""},
		"another's comment":               {"paid by the evenstep project", nil, ""},
		"a word that begins with ours":    {"evensteps workload=w", nil, ""},
		"the first word alone":            {"evenstep", nil, "workload: missing; give the name under which its speed is profiled"},
		"no global batch":                 {"evenstep workload=w", nil, "global_batch: missing; give the samples of one step"},
		"no samples":                      {"evenstep workload=w global_batch=1", nil, "samples: missing; give how many samples are left to train on"},
		"an unknown key":                  {"evenstep workload=w batch=9", nil, "batch: unknown key; give workload, global_batch, samples, workers or policy"},
		"an unknown key that is no name":  {"evenstep \x1b[31m\"=9", nil, `\x1b[31m\": unknown key; give workload, global_batch, samples, workers or policy`},
		"a word without =":                {"evenstep workload", nil, `request: "workload" is not key=value`},
		"a key given twice":               {"evenstep workload=w workload=w", nil, "workload: given twice"},
		"a command as workload":           {"evenstep workload=$(reboot)", nil, `workload: "$(reboot)"; give 1 to 128 of A-Z a-z 0-9 . _ : / @ + -`},
		"a quoted value":                  {`evenstep workload="w"`, nil, `workload: "\"w\""; give 1 to 128 of A-Z a-z 0-9 . _ : / @ + -`},
		"a batch of 0":                    {"evenstep global_batch=0", nil, `global_batch: "0" is not a whole number in 1 ... 2147483647`},
		"a batch with a sign":             {"evenstep global_batch=+8", nil, `global_batch: "+8" is not a whole number in 1 ... 2147483647`},
		"a batch beyond":                  {"evenstep global_batch=2147483648", nil, `global_batch: "2147483648" is not a whole number in 1 ... 2147483647`},
		"samples that are no number":      {"evenstep samples=NaN", nil, `samples: "NaN" is not a number > 0 and <= 1e+18`},
		"infinitely many samples":         {"evenstep samples=1e99", nil, `samples: "1e99" is not a number > 0 and <= 1e+18`},
		"no sample":                       {"evenstep samples=0", nil, `samples: "0" is not a number > 0 and <= 1e+18`},
		"samples in hexadecimal":          {"evenstep samples=0x1p3", nil, `samples: "0x1p3" is not a number > 0 and <= 1e+18`},
		"workers the wrong way round":     {"evenstep workers=4-2", nil, "workers: 2 is below 4; give MIN-MAX"},
		"workers without an end":          {"evenstep workers=4-", nil, `workers: "" is not a whole number in 1 ... 65536`},
		"more workers than samples":       {"evenstep workload=w global_batch=2 samples=1 workers=3", nil, "workers: 3 is above global_batch 2; give each at least one sample"},
		"a policy that is no name":        {"evenstep policy=../auto", nil, `policy: "../auto" is no policy's name`},
		"more than a comment of Slurm's":  {"evenstep " + strings.Repeat("x", 1024), nil, "request: 1025 bytes; give at most 1024"},
		"a value that tries to end lines": {"evenstep workload=w\x00", nil, `workload: "w\x00"; give 1 to 128 of A-Z a-z 0-9 . _ : / @ + -`},
	} {
		got, err := FromComment(c.comment)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%s: error %v, want %s", name, err, c.err)
		}
	}
}

// Whatever a user writes is refused in one printable line, or understood and comes back as it was.
func FuzzFromComment(f *testing.F) {
	f.Add("evenstep workload=resnet50-amp global_batch=1024 samples=90e6 workers=2-8 policy=auto")
	f.Add("evenstep samples=1.5\nworkload=`a`")
	f.Add("evenstep")
	f.Fuzz(func(t *testing.T, comment string) {
		r, err := FromComment(comment)
		if err != nil {
			for _, c := range err.Error() {
				if c < ' ' || c == 0x7f {
					t.Errorf("the error %q has a control character", err)
				}
			}
		}
		if r == nil {
			return
		}
		again, err := FromComment("evenstep " + r.String())
		if err != nil {
			t.Fatalf("%q is refused: %v", r, err)
		}
		if *again != *r {
			t.Errorf("%+v came back as %+v", r, again)
		}
	})
}
