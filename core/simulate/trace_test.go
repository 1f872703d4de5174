package simulate

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadTrace(t *testing.T) {
	both := [][]float64{{1, 2}}
	for name, c := range map[string]struct {
		csv  string
		want Trace
	}{
		"our columns, others ignored": {"step,gpu,worker,seconds\n7,x,a,1\n7,,b,2\n",
			Trace{[]string{"a", "b"}, []string{"7"}, both, 0}},
		"Alibaba's columns": {",worker,gpu,time,batch_time_norm\n0,0,25,1,1\n1,1,25,1,2\n",
			Trace{[]string{"0", "1"}, []string{"1"}, both, 0}},
		"ours win over Alibaba's": {"time,batch_time_norm,worker,step,seconds\n8,8,a,1,1\n9,9,b,1,2\n",
			Trace{[]string{"a", "b"}, []string{"1"}, both, 0}},
		"as spreadsheets write it": {"\ufeffworker,step,seconds\r\n\"a\",1,1\r\nb,1,2\r\n",
			Trace{[]string{"a", "b"}, []string{"1"}, both, 0}},
		"steps in rising order, workers as they come": {"worker,step,seconds\nb,10,4\na,10,3\na,9,1\nb,9,2\n",
			Trace{[]string{"b", "a"}, []string{"9", "10"}, [][]float64{{2, 1}, {4, 3}}, 0}},
		"a step without all workers is dropped": {"worker,step,seconds\na,1,1\nb,1,2\na,2,1\nb,3,1\n",
			Trace{[]string{"a", "b"}, []string{"1"}, both, 2}},
		"a time of 0 or nothing is no time": {"worker,step,seconds\na,1,1\nb,1,2\na,2,0\nb,2,1\na,3,1\nb,3,\n",
			Trace{[]string{"a", "b"}, []string{"1"}, both, 2}},
		"of duplicates the last": {"worker,step,seconds\na,1,7\nb,1,2\na,1,8\na,1.0,1\n",
			Trace{[]string{"a", "b"}, []string{"1"}, both, 0}},
		"the last of duplicates may say that there is none": {"worker,step,seconds\na,1,7\na,1,\na,2,1\n",
			Trace{[]string{"a"}, []string{"2"}, [][]float64{{1}}, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadTrace(strings.NewReader(c.csv))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadTraceRefuses(t *testing.T) {
	const header = "worker,step,seconds\n"
	const noNumber = "is not a number from 1e-09 to 1e+09; give 0 or nothing where there is none"
	for csv, want := range map[string]string{
		"":                             "empty; give a header and a row for each worker and step",
		"step,seconds\n":               "line 1: no column worker in the header",
		"worker,step,seconds,step\n":   "line 1: column step is twice in the header; give it once",
		"worker,seconds\n":             "line 1: no column step or time in the header",
		"worker,step\n":                "line 1: no column seconds or batch_time_norm in the header",
		header:                         "no rows; give one for each worker and step",
		header + "a,1\n":               "record on line 2: wrong number of fields",
		header + "a,1,\"2\n":           "parse error on line 2, column 8: extraneous or missing \" in quoted-field",
		header + "a,one,1\n":           "line 2: step: \"one\" is not a finite number",
		header + "a,1,1\na,NaN,1\n":    "line 3: step: \"NaN\" is not a finite number",
		header + "a,1,NaN\n":           "line 2: seconds: \"NaN\" " + noNumber,
		header + "a,1,-1\n":            "line 2: seconds: \"-1\" " + noNumber,
		header + "a,1,Inf\n":           "line 2: seconds: \"Inf\" " + noNumber,
		header + "a,1,1 s\n":           "line 2: seconds: \"1 s\" " + noNumber,
		header + "a,1,1\nb,2,1\n":      "none of the 2 steps has all 2 workers",
		header + "a,1,1\nb,1,\na,2,\n": "none of the 2 steps has all 2 workers",
	} {
		if _, err := ReadTrace(strings.NewReader(csv)); err == nil || err.Error() != want {
			t.Errorf("%q\ngot  %v\nwant %s", csv, err, want)
		}
	}
}

// endless is one character for ever.
type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

func TestReadTraceIsBounded(t *testing.T) {
	for _, filler := range []endless{'\n', '1', ',', '"'} {
		_, err := readTrace(io.MultiReader(strings.NewReader("worker,step,seconds\n"), filler), 1<<20)
		if err == nil || err.Error() != "larger than 1 MiB" {
			t.Errorf("%q: %v", filler, err)
		}
	}
}

// FuzzReadTrace: whatever the file, what is read is complete, and what is not is an error.
func FuzzReadTrace(f *testing.F) {
	f.Add("worker,step,seconds\na,1,1\nb,1,2\na,2,\nb,2,1e-9\n")
	f.Add(",worker,gpu,time,batch_time_norm\n0,0,25,1,476\n")
	f.Fuzz(func(t *testing.T, csv string) {
		trace, err := ReadTrace(strings.NewReader(csv))
		if err != nil {
			return
		}
		if len(trace.Steps) == 0 || len(trace.Steps) != len(trace.Seconds) {
			t.Fatalf("%d steps, times of %d", len(trace.Steps), len(trace.Seconds))
		}
		for _, times := range trace.Seconds {
			if len(times) != len(trace.Workers) {
				t.Fatalf("%d times of %d workers", len(times), len(trace.Workers))
			}
			for _, s := range times {
				if !(s >= leastSeconds && s <= mostSeconds) {
					t.Fatalf("%v seconds", s)
				}
			}
		}
	})
}
