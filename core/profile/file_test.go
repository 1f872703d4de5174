package profile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/evenstep/evenstep/core/cluster"
)

// writerFile makes the test binary a process that writes into the file until it is killed.
const writerFile = "EVENSTEP_TEST_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerFile); path != "" {
		writeUntilKilled(path)
	}
	os.Exit(m.Run())
}

// writeUntilKilled flushes one profile after the other and prints the number of each that is flushed.
func writeUntilKilled(path string) {
	k, err := Hold(path, time.Second, atNoon)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i := len(k.Profiles()); ; i++ {
		k.Record("w"+strconv.Itoa(i), cpu(strings.Repeat("x", 200)), seen(0.001, 10))
		if err := k.Flush(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

func fileIn(t *testing.T) string { return filepath.Join(t.TempDir(), "new", "profiles.db") }

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := OpenFile(path, false, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func all(t *testing.T, f *File) map[Key]Profile {
	t.Helper()
	profiles, err := f.Profiles()
	if err != nil {
		t.Fatal(err)
	}
	return profiles
}

// consistent checks every page of the file.
func consistent(t *testing.T, f *File) {
	t.Helper()
	err := f.db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A process is killed at any moment, from its start on in every other run, in the others while it writes: the file opens,
// and what was flushed is in it.
func TestAFileSurvivesKill9(t *testing.T) {
	path := fileIn(t)
	written := 0
	for run := range 60 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerFile+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, flushed := bufio.NewScanner(out), -1
		next := func() bool {
			more := lines.Scan()
			if n, err := strconv.Atoi(lines.Text()); more && err == nil {
				flushed = n
			} else if more {
				t.Fatalf("run %d: %s", run, lines.Text())
			}
			return more
		}
		if run%2 == 1 {
			next()
		}
		time.Sleep(time.Duration(rand.Int64N(int64(30 * time.Millisecond))))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for next() {
		}
		_ = cmd.Wait()
		f := open(t, path)
		consistent(t, f)
		if written = len(all(t, f)); written <= flushed {
			t.Fatalf("run %d: %d profiles are left, number %d was flushed", run, written, flushed)
		}
		f.Close()
	}
	if written < 3 { // a busy machine starts few processes in that time
		t.Errorf("%d profiles were written in all, which tries little", written)
	}
}

// Killed between any two of the writes that a flush is made of, the file is as before or as after. bbolt writes the pages
// in order and then the page that makes them count, of which two take turns.
func TestAFileSurvivesAStopAtEveryWrite(t *testing.T) {
	path := fileIn(t)
	write := func(n int) (image []byte) {
		f := open(t, path)
		defer f.Close()
		later := map[Key]Profile{}
		for i := range n {
			p := Profile{Curve: seen(0.001, 1).Curve, Steps: 1, LastSeen: noon}
			later[Key{"w" + strconv.Itoa(i), "cpu", strings.Repeat("y", 200)}] = p
		}
		if _, err := f.Merge(later); err != nil {
			t.Fatal(err)
		}
		return read(t, path)
	}
	before, after := write(30), write(60)
	page := os.Getpagesize()
	stopped := append(bytes.Clone(before), make([]byte, len(after)-len(before))...)
	var pages []int
	for at := 0; at < len(after); at += page {
		if !bytes.Equal(stopped[at:at+page], after[at:at+page]) {
			pages = append(pages, at)
		}
	}
	if len(pages) < 4 || pages[0] > page {
		t.Fatalf("the pages that differ are %v", pages)
	}
	for i, at := range append(pages[1:], pages[0]) { // the first one is the page that makes the others count
		copy(stopped[at:at+page], after[at:at+page])
		path := fileIn(t)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, stopped, 0o600)); err != nil {
			t.Fatal(err)
		}
		f := open(t, path)
		consistent(t, f)
		want := 30
		if i == len(pages)-1 {
			want = 60
		}
		if got := len(all(t, f)); got != want {
			t.Fatalf("after write %d of %d: %d profiles, want %d", i+1, len(pages), got, want)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestCoresOfOneUserShareAFile(t *testing.T) {
	path := fileIn(t)
	a, errA := Share(path, atNoon)
	b, errB := Share(path, atNoon)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	a.Record("w", cpu("a"), seen(0.001, 10))
	b.Record("w", cpu("b"), seen(0.002, 10))
	b.Record("w", cpu("a"), seen(0.001, 10))
	if err := errors.Join(a.Flush(), b.Flush()); err != nil {
		t.Fatal(err)
	}
	profiles := all(t, open(t, path))
	if len(profiles) != 2 || profiles[Key{"w", "cpu", "a"}].Steps != 20 {
		t.Errorf("got %+v", profiles)
	}
	if diff := cmp.Diff(profiles, b.bounded(), near12); diff != "" {
		t.Errorf("the core that flushed last knows other profiles than the file:\n%s", diff)
	}
}

func TestWhatCannotBeFlushedWaitsForTheNextTime(t *testing.T) {
	path := fileIn(t)
	k, err := Share(path, atNoon)
	if err != nil {
		t.Fatal(err)
	}
	holder := open(t, path)
	k.Record("w", cpu("a"), seen(0.001, 10))
	var held *HeldError
	if err := k.Flush(); !errors.As(err, &held) || held.Path != path {
		t.Fatalf("got %v", err)
	}
	k.Record("w", cpu("a"), seen(0.001, 10))
	if _, err := Share(path, atNoon); !errors.As(err, &held) {
		t.Fatalf("got %v", err)
	}
	holder.Close()
	for range 2 { // the second flush has nothing to do
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if p := all(t, open(t, path))[Key{"w", "cpu", "a"}]; p.Steps != 20 {
		t.Errorf("got %+v", p)
	}
}

func TestTheHolderIsNamed(t *testing.T) {
	path := fileIn(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerFile+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "0\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_, err = OpenFile(path, true, 100*time.Millisecond)
	if want := fmt.Sprintf("%s is held by process %d", path, cmd.Process.Pid); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAFileOfOthersIsRefused(t *testing.T) {
	foreign := func(name, value string) func(string) {
		return func(path string) {
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			err = db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucket([]byte(name))
				if err != nil {
					return err
				}
				if _, err := tx.CreateBucket(profilesBucket); err != nil {
					return err
				}
				return b.Put(versionKey, []byte(value))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		make func(path string)
		want string
	}{
		"of a later release": {foreign("meta", "2"), `version "2" is unknown; this release reads version 1`},
		"of another program": {foreign("users", "1"), "it holds other data"},
		"that is a text":     {func(p string) { _ = os.WriteFile(p, bytes.Repeat([]byte("no "), 9000), 0o600) }, "invalid database"},
		"that is cut off":    {func(p string) { open(t, p).Close(); _ = os.Truncate(p, 4096) }, "move it away"},
		"with torn pages": {func(p string) {
			open(t, p).Close()
			content := read(t, p)
			for i := 2 * os.Getpagesize(); i < len(content); i++ {
				content[i] ^= 0x5a
			}
			_ = os.WriteFile(p, content, 0o600)
		}, "move it away"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "profiles.db")
			c.make(path)
			before := read(t, path)
			for _, readOnly := range []bool{true, false} {
				f, err := OpenFile(path, readOnly, time.Second)
				if err == nil {
					f.Close()
				}
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), path) {
					t.Errorf("got %v, want %s", err, c.want)
				}
			}
			if !bytes.Equal(read(t, path), before) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestAnEmptyFileBecomesOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profiles.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(path, true, time.Second); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if got := all(t, open(t, path)); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestOnlyItsUserReadsTheFile(t *testing.T) {
	path := fileIn(t)
	open(t, path)
	for p, want := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): fs.ModeDir | 0o700} {
		if info, err := os.Stat(p); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, want %v", p, info.Mode(), want)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("besides the file there are %v", left)
	}
}

func TestImportKeepsWhatWasSeenLast(t *testing.T) {
	f := open(t, fileIn(t))
	entry := func(device string, steps int, at time.Time) Entry {
		return Entry{Key{"w", "cpu", device}, Profile{Curve: seen(0.001, 1).Curve, Steps: steps, LastSeen: at}}
	}
	old, now := noon.Add(-time.Hour), noon
	if err := f.Import([]Entry{entry("a", 1, old), entry("b", 1, now)}); err != nil {
		t.Fatal(err)
	}
	if err := f.Import([]Entry{entry("a", 2, now), entry("b", 2, old), entry("c", 2, now)}); err != nil {
		t.Fatal(err)
	}
	steps := map[string]int{}
	for k, p := range all(t, f) {
		steps[k.Device] = p.Steps
	}
	if want := map[string]int{"a": 2, "b": 1, "c": 2}; !maps.Equal(steps, want) {
		t.Errorf("got %v, want %v", steps, want)
	}
}

func TestForgetting(t *testing.T) {
	f := open(t, fileIn(t))
	book := NewBook(atNoon)
	for _, w := range []string{"a", "b"} {
		for _, device := range []cluster.Device{cpu("1"), cpu("2"), {Type: "v100"}} {
			book.Record(w, device, seen(0.001, 1))
		}
	}
	if _, err := f.Merge(book.take()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		workload, deviceType string
		forgotten, left      int
	}{{"a", "cpu", 2, 4}, {"a", "cpu", 0, 4}, {"c", "", 0, 4}, {"b", "", 3, 1}} {
		n, err := f.Forget(c.workload, c.deviceType)
		if err != nil || n != c.forgotten || len(all(t, f)) != c.left {
			t.Errorf("%+v: forgot %d, %v; %d are left", c, n, err, len(all(t, f)))
		}
	}
}

// FuzzFile lets whatever is in a file's values come out valid or not at all.
func FuzzFile(f *testing.F) {
	good, err := encode(Entry{Key{"w", "cpu", "a"}, Profile{Curve: seen(0.001, 1).Curve, Steps: 1, LastSeen: noon}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"workload":"w","type":"cpu","curve":{"fixed_seconds":1e308,"seconds_per_sample":1e308},"batch_size":1e308}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		e, err := decode(value)
		if err == nil && (e.Key.Check() != nil || e.Profile.Check() != nil) {
			t.Errorf("%+v is not valid", e)
		}
	})
}

// near12 lets numbers differ by what a file rounds.
var near12 = cmp.Comparer(func(a, b float64) bool { return a == b || math.Abs(a-b) < 1e-9*math.Abs(a) })

// A disk that is full is no reason to throw the profiles away.
func TestAFullDiskLeavesTheFileAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profiles.db")
	k, err := Hold(path, 0, atNoon)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	k.Record("w", cpu("a"), seen(0.001, 100))
	if err := k.Flush(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		k.Record(fmt.Sprint("w:", i), cpu("a"), seen(0.001, 100))
	}
	var before unix.Rlimit
	full := func() error {
		if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
			t.Fatal(err)
		}
		limit := unix.Rlimit{Cur: uint64(info.Size()), Max: before.Max}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Setrlimit(unix.RLIMIT_FSIZE, &before) }()
		return k.Flush()
	}
	if err := full(); err == nil || errors.As(err, new(*ForeignError)) || !strings.Contains(err.Error(), "too large") {
		t.Errorf("got %v", err)
	}
	if all, err := k.held.Profiles(); err != nil || len(all) != 1 {
		t.Errorf("the file holds %d, %v", len(all), err)
	}
	if err := k.Flush(); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if all, err := k.held.Profiles(); err != nil || len(all) != 1001 {
		t.Errorf("the file holds %d, %v", len(all), err)
	}
}

// A full book of new profiles into a file, which a core that ends has little time for. Target: below 3 s.
func BenchmarkFlush(b *testing.B) {
	for i := 0; b.Loop(); i++ {
		k, err := Hold(filepath.Join(b.TempDir(), "profiles.db"), 0, atNoon)
		if err != nil {
			b.Fatal(err)
		}
		for i := range mostProfiles {
			k.Record(fmt.Sprint("w:", i/64), cluster.Device{Type: fmt.Sprint("type ", i%64)}, seen(0.001, 100))
		}
		if err := k.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
