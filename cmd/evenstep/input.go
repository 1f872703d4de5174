package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxInputBytes = 64 << 20
	maxWhole      = 1 << 53 // whole numbers up to here survive any JSON reader
)

// readInput decodes the JSON file that args names, stdin without one or for "-". It is strict: unknown fields,
// duplicate keys, null, trailing data and more than 64 MiB are errors, which name the field by its path.
func readInput(args []string, stdin io.Reader, into any) error {
	data, err := readText(args, stdin)
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return errors.New("input is empty; give one JSON object")
	}
	return describe(json.Unmarshal(data, into, json.RejectUnknownMembers(true),
		json.WithUnmarshalers(json.UnmarshalFromFunc(refuseNull))))
}

// readText reads the one input of a command: the file named by its first argument, or stdin where that is absent or -.
func readText(args []string, stdin io.Reader) ([]byte, error) {
	if len(args) > 0 && args[0] != "-" {
		file, err := os.Open(args[0])
		if err != nil {
			return nil, err
		}
		defer file.Close()
		stdin = file
	}
	data, err := io.ReadAll(io.LimitReader(stdin, maxInputBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxInputBytes:
		return nil, fmt.Errorf("input is larger than %d MiB", maxInputBytes>>20)
	}
	return data, nil
}

// refuseNull stands before the decoding of every value.
func refuseNull(d *jsontext.Decoder, _ any) error {
	if d.PeekKind() == 'n' {
		return errors.New("null; give a value or leave it out")
	}
	return errors.ErrUnsupported // decode it as ever
}

// describe turns the decoder's error into one line that starts with the field's path.
func describe(err error) error {
	var syntactic *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntactic) && errors.Is(err, jsontext.ErrDuplicateName):
		return at(syntactic.JSONPointer, errors.New("given twice"))
	case errors.As(err, &syntactic):
		return at(syntactic.JSONPointer, fmt.Errorf("not JSON at byte %d: %w", syntactic.ByteOffset, syntactic.Err))
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		// Its name may be a number; the names above it are known ones, which are not.
		name := semantic.JSONPointer.LastToken()
		return fmt.Errorf("%s: unknown field", member(path(semantic.JSONPointer.Parent()), name))
	case errors.As(err, &semantic) && semantic.Err != nil:
		return at(semantic.JSONPointer, semantic.Err)
	case errors.As(err, &semantic):
		return at(semantic.JSONPointer, fmt.Errorf("%s is not %s", kind(semantic.JSONKind), wanted(semantic.GoType)))
	}
	return err
}

func at(pointer jsontext.Pointer, err error) error {
	if pointer == "" {
		return err
	}
	return fmt.Errorf("%s: %w", path(pointer), err)
}

// path writes a JSON pointer as users write it: /workers/1/curve is workers[1].curve.
func path(pointer jsontext.Pointer) string {
	path := ""
	for token := range pointer.Tokens() {
		if _, err := strconv.ParseUint(token, 10, 64); err == nil {
			path += "[" + token + "]"
		} else {
			path = member(path, token)
		}
	}
	return path
}

// member is the path of a member of the object at the path.
func member(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// given is a field that may be left out.
type given[T any] struct {
	set   bool
	value T
}

func (g *given[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	g.set = true
	return json.UnmarshalDecode(d, &g.value)
}

// or is the value, or what stands for it where it was left out.
func (g given[T]) or(absent T) T {
	if g.set {
		return g.value
	}
	return absent
}

// whole is a whole number of at most 2^53 either way, however it is written: 1000, 1e3.
type whole int

func (w *whole) UnmarshalJSONFrom(d *jsontext.Decoder) (err error) {
	*w, err = read(d, literal.whole)
	return err
}

// amount is a finite number of at least 0.
type amount float64

func (a *amount) UnmarshalJSONFrom(d *jsontext.Decoder) (err error) {
	*a, err = read(d, literal.amount)
	return err
}

// literal is a JSON number as it is written.
type literal string

func (l *literal) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	value, err := d.ReadValue()
	if err != nil {
		return err
	}
	if value.Kind() != '0' {
		return fmt.Errorf("%s is not a number", kind(value.Kind()))
	}
	*l = literal(value)
	return nil
}

// read reads a number as what it is to be.
func read[T any](d *jsontext.Decoder, as func(literal) (T, error)) (T, error) {
	var text literal
	if err := text.UnmarshalJSONFrom(d); err != nil {
		var none T
		return none, err
	}
	return as(text)
}

func (l literal) amount() (amount, error) {
	x, err := strconv.ParseFloat(string(l), 64)
	if err != nil || x < 0 {
		return 0, fmt.Errorf("%s is not a finite number >= 0", l)
	}
	return amount(x), nil
}

// whole moves the point in the text: a float would round, and a big number would take what its exponent says.
func (l literal) whole() (whole, error) {
	text, negative := strings.CutPrefix(strings.ToLower(string(l)), "-")
	mantissa, exponent, _ := strings.Cut(text, "e")
	before, after, _ := strings.Cut(mantissa, ".")
	zeros, _ := strconv.ParseInt(exponent, 10, 32) // the closest there is, where it does not fit
	zeros -= int64(len(after))
	digits := strings.TrimLeft(before+after, "0")
	significant := strings.TrimRight(digits, "0")
	zeros += int64(len(digits) - len(significant))
	switch {
	case significant == "":
		return 0, nil
	case zeros < 0:
		return 0, fmt.Errorf("%s is not a whole number", l)
	case int64(len(significant))+zeros > 16:
		return 0, fmt.Errorf("%s is beyond 2^53", l)
	}
	n, err := strconv.ParseInt(significant+strings.Repeat("0", int(zeros)), 10, 64)
	if err != nil || n > maxWhole {
		return 0, fmt.Errorf("%s is beyond 2^53", l)
	}
	if negative {
		n = -n
	}
	return whole(n), nil
}

// wanted is the kind of JSON value that fills the Go type.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct:
		return "an object"
	case reflect.Slice:
		return "an array"
	}
	return "a " + t.Kind().String()
}

func kind(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	}
	return "a number"
}
