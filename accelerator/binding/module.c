/* The extension module `_bpe_tokenizer.native`: its parts put together. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "binding/encoder.h"
#include "binding/files.h"
#include "binding/finder.h"
#include "binding/pairs.h"
#include "binding/ranks.h"
#include "binding/respell.h"
#include "binding/rows.h"
#include "binding/runs.h"
#include "binding/scan.h"
#include "binding/shared.h"
#include "binding/shown.h"
#include "binding/stream.h"
#include "binding/training.h"
#include "binding/words.h"
#include "scan/unicode_tables.h"

enum {
    API = 26, /* what engine.py expects; raised with every change it would notice */
};

/* What the scanners use that not every processor has. */
static const char *instructions(void)
{
#if defined(BPE_WITH_NEON)
    return "NEON";
#else
    return has_avx2() ? "AVX2" : "portable";
#endif
}

static int add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (!type)
        return -1;
    if (PyModule_AddObject(module, name, type) < 0) {
        Py_DECREF(type);
        return -1;
    }
    return 0;
}

static int module_exec(PyObject *module)
{
    if (add_type(module, "Encoder", &encoder_spec) < 0 ||
        add_type(module, "Finder", &finder_spec) < 0 ||
        add_type(module, "PairCounter", &pair_counter_spec) < 0 ||
        add_type(module, "PairLearner", &pair_learner_spec) < 0 ||
        add_type(module, "RunCounter", &run_counter_spec) < 0 ||
        add_type(module, "Stream", &stream_spec) < 0 ||
        add_type(module, "WordFinder", &word_finder_spec) < 0)
        return -1;
    if (PyModule_AddFunctions(module, scan_methods) < 0 ||
        PyModule_AddFunctions(module, ranks_methods) < 0 ||
        PyModule_AddFunctions(module, files_methods) < 0 ||
        PyModule_AddFunctions(module, respell_methods) < 0 ||
        PyModule_AddFunctions(module, rows_methods) < 0 ||
        PyModule_AddFunctions(module, shared_methods) < 0 || add_patterns(module) < 0)
        return -1;
    if (add_training(module) < 0 || add_shown(module) < 0)
        return -1;
    if (PyModule_AddIntMacro(module, API) < 0 ||
        PyModule_AddStringConstant(module, "UNICODE_VERSION", UNICODE_VERSION) < 0 ||
        PyModule_AddStringConstant(module, "INSTRUCTIONS", instructions()) < 0)
        return -1;
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_bpe_tokenizer.native",
    .m_doc = "The engine of bpe_tokenizer, in C: the same answers, faster.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit_native(void)
{
    return PyModuleDef_Init(&module_def);
}
