package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Buckets and keys of the file.
var (
	metaBucket     = []byte("meta")
	versionKey     = []byte("version")
	profilesBucket = []byte("profiles")
)

// HeldError says that another process holds the file.
type HeldError struct {
	Path string
	PID  int // 0 when the kernel does not say
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is held by another process", e.Path)
	}
	return fmt.Sprintf("%s is held by process %d", e.Path, e.PID)
}

// ForeignError says that a file holds something else than profiles of this release, or is damaged.
type ForeignError struct {
	Path string
	Err  error
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s is not a file of profiles: %v; move it away", e.Path, e.Err)
}

func (e *ForeignError) Unwrap() error { return e.Err }

// File is profiles on disk, locked as long as it is open: against all others, or against those that write where it was
// opened to read only. Every change is one transaction of bbolt, which is in the file completely or not at all, whenever
// the process ends.
type File struct {
	db   *bbolt.DB
	path string
}

// OpenFile opens the file, and makes it and its folder unless it is opened to read only. It waits so long for others to
// let go of it; then the error is a *HeldError. A file that is missing and to be read only is fs.ErrNotExist.
func OpenFile(path string, readOnly bool, wait time.Duration) (f *File, err error) {
	if !readOnly {
		if err := makeFile(path); err != nil {
			return nil, err
		}
	} else if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		return nil, fs.ErrNotExist // about to be made, or made by others
	}
	f = &File{path: path}
	err = f.guard(func() error {
		f.db, err = bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: readOnly, Timeout: wait})
		return err
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, &HeldError{path, holder(path)}
	case isOfSystem(err):
		return nil, err
	case err != nil:
		return nil, &ForeignError{path, err}
	}
	if err := f.prepare(readOnly); err != nil {
		return nil, errors.Join(err, f.db.Close())
	}
	return f, nil
}

// prepare checks that the file is one of ours; one without anything in it becomes one.
func (f *File) prepare(readOnly bool) error {
	empty := false
	err := f.view(func(*bbolt.Bucket) error { return nil })
	if err == nil || readOnly {
		return err
	}
	if f.guard(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			name, _ := tx.Cursor().First()
			empty = name == nil
			return nil
		})
	}) == nil && empty {
		return f.describe(f.guard(func() error { return f.db.Update(begin) }))
	}
	return err
}

// begin makes the buckets of an empty file.
func begin(tx *bbolt.Tx) error {
	meta, err := tx.CreateBucket(metaBucket)
	if err != nil {
		return err
	}
	if _, err := tx.CreateBucket(profilesBucket); err != nil {
		return err
	}
	return meta.Put(versionKey, []byte(strconv.Itoa(Version)))
}

// makeFile makes an empty file, if there is none. It is made aside and linked into its place, so that whenever the process
// ends there is none or one that opens; of several processes that make it at the same time one does.
func makeFile(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(folder, ".profiles-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	aside := filepath.Join(temporary, "new")
	db, err := bbolt.Open(aside, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(begin)
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := os.Link(aside, path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Close lets go of the file.
func (f *File) Close() error { return f.db.Close() }

// Profiles reads all of them. One that is not valid is left out.
func (f *File) Profiles() (all map[Key]Profile, err error) {
	err = f.view(func(b *bbolt.Bucket) error {
		all, err = readAll(b)
		return err
	})
	return all, err
}

func readAll(b *bbolt.Bucket) (map[Key]Profile, error) {
	all := map[Key]Profile{}
	return all, b.ForEach(func(_, value []byte) error {
		if e, err := decode(value); err == nil {
			all[e.Key] = e.Profile
		}
		return nil
	})
}

// Merge adds what was seen later, and returns all that the file then holds.
func (f *File) Merge(later map[Key]Profile) (all map[Key]Profile, err error) {
	return f.change(func(all map[Key]Profile) (changed []Key) {
		for k, p := range later {
			add(all, k, p)
			changed = append(changed, k)
		}
		return changed
	})
}

// Import puts the entries in. Of two profiles with one key the one seen last stays.
func (f *File) Import(entries []Entry) error {
	_, err := f.change(func(all map[Key]Profile) (changed []Key) {
		for _, e := range entries {
			if before, ok := all[e.Key]; !ok || !before.LastSeen.After(e.LastSeen) {
				all[e.Key] = e.Profile
				changed = append(changed, e.Key)
			}
		}
		return changed
	})
	return err
}

// Forget removes the profiles of a workload, on one device type or on all where that is empty, and says how many.
func (f *File) Forget(workload, deviceType string) (count int, err error) {
	_, err = f.change(func(all map[Key]Profile) (changed []Key) {
		for k := range all {
			if k.Workload == workload && (deviceType == "" || k.Type == deviceType) {
				changed = append(changed, k)
			}
		}
		for _, k := range changed {
			delete(all, k)
		}
		count = len(changed)
		return changed
	})
	return count, err
}

// change lets edit change what is in the file and say which keys it changed, in one transaction, and keeps the bounds.
func (f *File) change(edit func(all map[Key]Profile) (changed []Key)) (all map[Key]Profile, err error) {
	err = f.guard(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			b, err := f.bucket(tx)
			if err != nil {
				return err
			}
			if all, err = readAll(b); err != nil {
				return err
			}
			changed := edit(all)
			changed = append(changed, trim(all)...)
			slices.SortFunc(changed, Key.compare) // in another order, thousands of new ones take many seconds
			for _, k := range changed {
				if err := write(b, k, all); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return all, f.describe(err)
}

// write makes the file's profile of a key that of all, or none.
func write(b *bbolt.Bucket, k Key, all map[Key]Profile) error {
	// No name has a zero byte in it.
	name := []byte(k.Workload + "\x00" + k.Type + "\x00" + k.Device)
	p, ok := all[k]
	if !ok {
		return b.Delete(name)
	}
	value, err := encode(Entry{k, p})
	if err != nil {
		return err
	}
	return b.Put(name, value)
}

func (f *File) view(read func(*bbolt.Bucket) error) error {
	return f.describe(f.guard(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			b, err := f.bucket(tx)
			if err != nil {
				return err
			}
			return read(b)
		})
	}))
}

// bucket is where the profiles are, in a file of our version.
func (f *File) bucket(tx *bbolt.Tx) (*bbolt.Bucket, error) {
	meta, profiles := tx.Bucket(metaBucket), tx.Bucket(profilesBucket)
	if meta == nil || profiles == nil {
		return nil, &ForeignError{f.path, errors.New("it holds other data")}
	}
	if v := string(meta.Get(versionKey)); v != strconv.Itoa(Version) {
		return nil, &ForeignError{f.path, fmt.Errorf("version %.20q is unknown; this release reads version %d", v, Version)}
	}
	return profiles, nil
}

// guard turns a panic, which is how bbolt meets a damaged file, into an error. A file that is shorter than its pages say
// would be a fault of memory.
func (f *File) guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &ForeignError{f.path, fmt.Errorf("damaged (%v)", r)}
		}
	}()
	return do()
}

// describe says in an error of bbolt's which file it is about, where it does not.
func (f *File) describe(err error) error {
	var foreign *ForeignError
	if err == nil || isOfSystem(err) || errors.As(err, &foreign) {
		return err
	}
	return fmt.Errorf("%s: %w", f.path, err)
}

// isOfSystem says whether the system refused something, which names the file then.
func isOfSystem(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path)
}
