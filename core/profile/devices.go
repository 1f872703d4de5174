package profile

import (
	"math"
	"regexp"
	"strings"
)

// model is a device model with two figures of its maker's data sheet.
type model struct {
	name      string  // letters and digits as they stand together in vendors' names, in lower case
	bandwidth float64 // of the device memory, GB/s
	half      float64 // peak of dense half-precision products summed in single precision, TFLOPS; single where it has none
}

// models are facts from data sheets: NVIDIA's of Tesla K80 (one of its two GPUs, boost), M60 (one of two), P4, P40, P100
// SXM2, V100 SXM2, T4, A2, A10, A16 (one of four), A30, A40, A100 40GB and 80GB, L4, L40, L40S, H100 PCIe and SXM, H200
// SXM, B200, RTX A4000, A5000, A6000, RTX 6000 Ada, Quadro RTX 6000 and 8000, Titan V, Titan RTX, GeForce GTX 1080, 1080
// Ti, RTX 2080, 2080 Ti, 3080, 3090, 4080, 4090; AMD's of Instinct MI100, MI210, MI250X (one of two), MI300X. Where one
// name is in another, the longer one comes first.
var models = []model{
	{"k80", 240, 4.37}, {"m60", 160, 4.8}, {"p40", 346, 11.8}, {"p4", 192, 5.5}, {"p100", 732, 21.2},
	{"v100", 900, 125}, {"t4", 300, 65}, {"a2", 200, 18}, {"a100 80", 1935, 312}, {"a100", 1555, 312},
	{"a10", 600, 125}, {"a10g", 600, 70}, {"a16", 200, 18}, {"a30", 933, 165}, {"a40", 696, 149.7},
	{"l40s", 864, 362}, {"l40", 864, 181}, {"l4", 300, 121}, {"h200", 4800, 989}, {"h100 pcie", 2000, 756},
	{"h100", 3350, 989}, {"b200", 8000, 2250}, {"a4000", 448, 76.7}, {"a5000", 768, 111.1}, {"a6000", 768, 154.8},
	{"rtx 6000 ada", 960, 364}, {"rtx 6000", 672, 130.5}, {"rtx 8000", 672, 130.5}, {"titan v", 653, 110},
	{"titan rtx", 672, 130.5}, {"1080 ti", 484, 11.3}, {"1080", 320, 8.9}, {"2080 ti", 616, 53.8}, {"2080", 448, 40.3},
	{"3080", 760, 59.5}, {"3090", 936, 71}, {"4080", 717, 97.5}, {"4090", 1008, 165.2}, {"mi100", 1228, 184.6},
	{"mi210", 1638, 181}, {"mi250x", 1638, 191.5}, {"mi300x", 5300, 1307},
}

// publicModels are the models by name, which is the column of the types that name them.
var publicModels = func() map[string]model {
	byName := make(map[string]model, len(models))
	for _, m := range models {
		byName[m.name] = m
	}
	return byName
}()

// How speed goes with the figures: the two exponents that fit, by least squares, how fast twelve devices train next to a
// V100 in the public tables of Lambda (github.com/lambdal/lambda-tensorflow-benchmark, BSD-3-Clause) and Gavel
// (github.com/stanford-futuredata/gavel, MIT). They leave an error of 21 % of a device's mean over workloads.
const (
	bandwidthExponent = 0.85
	halfExponent      = 0.12
	// ratioSigma is how far a workload's ratio of speeds on two devices is from what the figures say, as a logarithm.
	ratioSigma = 0.5
)

// words are what vendors' names consist of: "Tesla V100-SXM2-16GB" is tesla, v100, sxm2, 16, gb.
var words = regexp.MustCompile(`[0-9]+gb|[a-z]*[0-9]+[a-z]*|[a-z]+`)

// slower are words of names of devices that are not what the rest of the name says.
var slower = regexp.MustCompile(`(?i)max-?q|laptop|mobile|mig`)

// modelOf finds the model that a device type names; false where none is known.
func modelOf(deviceType string) (model, bool) {
	if slower.MatchString(deviceType) {
		return model{}, false
	}
	spaced := " " + strings.Join(words.FindAllString(strings.ToLower(deviceType), -1), " ") + " "
	spaced = strings.ReplaceAll(spaced, "0ti ", "0 ti ")
	for _, m := range models {
		all := true
		for _, word := range strings.Fields(m.name) {
			all = all && (strings.Contains(spaced, " "+word+" ") || strings.Contains(spaced, " "+word+"gb "))
		}
		if all {
			return m, true
		}
	}
	return model{}, false
}

// column is what types have in common that are one model under several names, such as a scheduler's and the vendor's.
func column(deviceType string) string {
	if m, known := modelOf(deviceType); known {
		return m.name
	}
	return deviceType
}

// relativeSpeed is the logarithm of how fast a model is, next to a V100.
func (m model) relativeSpeed() float64 {
	return bandwidthExponent*math.Log(m.bandwidth/900) + halfExponent*math.Log(m.half/125)
}
